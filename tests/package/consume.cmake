# Builds and runs programs in a consumer's project, and checks the installed CMake files.
#   cmake -DHOW=installed|subdirectory -DSOURCE=... -DBUILD=... -DWORK=... -DTorch_DIR=... -P consume.cmake
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
set(options -G Ninja -DCMAKE_BUILD_TYPE=Release "-DTorch_DIR=${Torch_DIR}")

if(HOW STREQUAL "installed")
  run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/first place")
  # The installed files can be moved. They contain no path of the machine that built them.
  file(RENAME "${WORK}/first place" "${WORK}/second place")
  file(GLOB_RECURSE config "${WORK}/second place/*.cmake")
  if(NOT config)
    message(FATAL_ERROR "no CMake files were installed")
  endif()
  foreach(file IN LISTS config)
    file(READ "${file}" text)
    foreach(path "${SOURCE}" "${BUILD}" "${WORK}" "${Torch_DIR}")
      string(FIND "${text}" "${path}" found)
      if(NOT found EQUAL -1)
        message(FATAL_ERROR "${file} contains ${path}")
      endif()
    endforeach()
    string(REGEX MATCH "[\" ;](/usr|/home|/root|/opt|/tmp)/[^\";]*" absolute "${text}")
    if(absolute)
      message(FATAL_ERROR "${file} contains an absolute path: ${absolute}")
    endif()
  endforeach()
  list(APPEND options "-DCMAKE_PREFIX_PATH=${WORK}/second place"
    "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--as-needed")
else()
  # The default -O3 of a release build would replace -Ofast.
  list(APPEND options "-DMINI_SOURCE=${SOURCE}" "-DCMAKE_CXX_FLAGS=-ffast-math"
    "-DCMAKE_CXX_FLAGS_RELEASE=-Ofast -funsafe-math-optimizations -fno-signed-zeros -DNDEBUG")
endif()

# Configures the project in the folder HOW and builds the program.
function(build folder program)
  run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/${HOW}" -B "${WORK}/${folder}" ${options} ${ARGN})
  run("${CMAKE_COMMAND}" --build "${WORK}/${folder}" --target ${program})
endfunction()
# Builds the program, runs it in WORK, and compares its output with a regular expression. Further
# arguments are arguments of the program.
function(check_output folder component program expected)
  build("${folder}" ${program} -DCOMPONENT=${component})
  execute_process(COMMAND "${WORK}/${folder}/${program}" ${ARGN} WORKING_DIRECTORY "${WORK}"
    OUTPUT_VARIABLE output RESULT_VARIABLE status COMMAND_ECHO STDOUT)
  message(STATUS "${output}")
  if(status OR NOT output MATCHES "${expected}")
    message(FATAL_ERROR "${program}: expected '${expected}', got status ${status} and\n${output}")
  endif()
endfunction()

check_output(build transformer train_head
  "step 0: loss 0\\.[1-9][0-9]+\nstep 50: loss [0-9.]+\nstep 100: loss 0\\.00")
set(drawing "0\\.10 +0\\.17 +0\\.28")
if(HOW STREQUAL "installed")
  set(operator "output 1, gradient defined")
  check_output(build transformer operator_only "${operator}")
  # A program may load a second copy of the library.
  file(GLOB_RECURSE library "${WORK}/second place/libmini_transformer.so.?.?.?")
  file(COPY_FILE "${library}" "${WORK}/second copy.so")
  check_output(build transformer operator_only "${operator}" "${WORK}/second copy.so")
  check_output("build figures" figures draw_matrix "${drawing}")
else()
  check_output(build transformer strict_math "the same results and errors")
  file(STRINGS "${WORK}/build/mini-transformer/libmini_transformer.so" fast_math REGEX "set_fast_math")
  if(fast_math)
    message(FATAL_ERROR "libmini_transformer.so rounds subnormal numbers to 0: it has ${fast_math}")
  endif()
  check_output(build figures draw_matrix "${drawing}")
endif()
file(READ "${WORK}/weights.svg" svg)
if(NOT svg MATCHES "^<svg ")
  message(FATAL_ERROR "draw_matrix: expected an image in weights.svg, got:\n${svg}")
endif()
