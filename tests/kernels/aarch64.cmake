# The kernels compiled for aarch64 and run under an emulator, with the ctest label `aarch64`.
#
# `sh cmake/bootstrap.sh test --with aarch64` installs the compiler, the emulator and Highway.

find_program(MINI_AARCH64_COMPILER aarch64-linux-gnu-g++)
find_program(MINI_QEMU_AARCH64 NAMES qemu-aarch64 qemu-aarch64-static)
set(MINI_AARCH64_HIGHWAY ${PROJECT_SOURCE_DIR}/build/highway-aarch64/usr
  CACHE PATH "The folder of Highway's include/ and lib/ for aarch64")

set(missing "")
if(NOT MINI_AARCH64_COMPILER)
  list(APPEND missing aarch64-linux-gnu-g++)
endif()
if(NOT MINI_QEMU_AARCH64)
  list(APPEND missing qemu-aarch64)
endif()
file(GLOB highway_library ${MINI_AARCH64_HIGHWAY}/lib/libhwy.so
  ${MINI_AARCH64_HIGHWAY}/lib/aarch64-linux-gnu/libhwy.so)
if(NOT highway_library OR NOT EXISTS ${MINI_AARCH64_HIGHWAY}/include/hwy/highway.h)
  list(APPEND missing "Highway in ${MINI_AARCH64_HIGHWAY}")
endif()
if(missing)
  list(JOIN missing ", " missing)
  message(STATUS "No tests for aarch64: missing ${missing} "
    "(sh cmake/bootstrap.sh test --with aarch64)")
  return()
endif()

list(GET highway_library 0 highway_library)
cmake_path(GET highway_library PARENT_PATH highway_folder)
get_target_property(sources mini_transformer SOURCES)
list(FILTER sources INCLUDE REGEX "/src/kernels/[a-z_]+\\.cpp$")
list(APPEND sources ${CMAKE_CURRENT_SOURCE_DIR}/plain_kernel_checks.cpp)

# A build folder has one C++ compiler, so these files are compiled by commands of their own.
set(objects "")
foreach(source IN LISTS sources)
  cmake_path(GET source STEM name)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.aarch64.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${MINI_AARCH64_COMPILER} -std=c++20 -O2 -Wall -Wextra -Werror
      -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_BINARY_DIR}/include
      -isystem ${MINI_AARCH64_HIGHWAY}/include -MD -MF ${object}.d -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d
    COMMENT "Compiling ${name}.cpp for aarch64" VERBATIM)
  list(APPEND objects ${object})
endforeach()
set(program ${CMAKE_CURRENT_BINARY_DIR}/plain_kernel_checks.aarch64)
add_custom_command(OUTPUT ${program}
  COMMAND ${MINI_AARCH64_COMPILER} ${objects} ${highway_library} -Wl,-rpath,${highway_folder}
    -o ${program}
  DEPENDS ${objects} VERBATIM)
add_custom_target(mini_aarch64_kernels ALL DEPENDS ${program})

add_test(NAME aarch64.kernels
  COMMAND ${MINI_QEMU_AARCH64} -L /usr/aarch64-linux-gnu ${program} NEON)
set_tests_properties(aarch64.kernels PROPERTIES LABELS aarch64)
