# Sets Torch_DIR to the folder of LibTorch's TorchConfig.cmake, unless Torch_DIR is already set.
#
# Searches in this order: Torch_DIR (the variable, then the environment), CMAKE_PREFIX_PATH (the
# same), the torch package of the Python on PATH, the torch package of ./.venv. As a script,
# `cmake -P cmake/find_libtorch.cmake` prints the folder, or fails if there is none.

# The versions of LibTorch that the tests have passed with.
set(MINI_TESTED_LIBTORCH 2.13)

# Call this after find_package(Torch), which sets Torch_VERSION.
function(mini_check_libtorch_version)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" version "${Torch_VERSION}")
  if(NOT version IN_LIST MINI_TESTED_LIBTORCH)
    list(JOIN MINI_TESTED_LIBTORCH ", " tested)
    message(WARNING "LibTorch ${Torch_VERSION}: ${PROJECT_NAME} is tested with LibTorch ${tested} only. "
      "Run the tests before you rely on the results.")
  endif()
endfunction()

# A CUDA build of LibTorch is not usable without the CUDA toolkit: find_package(Torch) fails.
function(mini_is_usable_libtorch torch_dir result)
  set(${result} FALSE PARENT_SCOPE)
  if(NOT EXISTS "${torch_dir}/TorchConfig.cmake")
    return()
  endif()
  file(GLOB cuda_library "${torch_dir}/../../../lib/libtorch_cuda.*")
  find_program(MINI_NVCC nvcc HINTS ENV CUDA_HOME PATH_SUFFIXES bin NO_CACHE)
  if(cuda_library AND NOT MINI_NVCC)
    message(STATUS "Skipping ${torch_dir}: a CUDA build, but the CUDA toolkit is not installed")
    return()
  endif()
  set(${result} TRUE PARENT_SCOPE)
endfunction()

# Sets `result` to the folder in the torch package of this Python, without importing torch.
function(mini_libtorch_of_python python result)
  set(${result} "" PARENT_SCOPE)
  set(program "import importlib.util, pathlib
spec = importlib.util.find_spec('torch')
if spec and spec.origin:
    print(pathlib.Path(spec.origin).parent / 'share/cmake/Torch', end='')")
  execute_process(COMMAND "${python}" -c "${program}" OUTPUT_VARIABLE torch_dir ERROR_QUIET)
  set(${result} "${torch_dir}" PARENT_SCOPE)
endfunction()

function(mini_find_libtorch result)
  if(Torch_DIR)
    set(${result} "${Torch_DIR}" PARENT_SCOPE)
    return()
  endif()
  if(DEFINED ENV{Torch_DIR})
    set(${result} "$ENV{Torch_DIR}" PARENT_SCOPE)
    return()
  endif()

  find_path(from_prefix TorchConfig.cmake
    PATHS ${CMAKE_PREFIX_PATH} ENV CMAKE_PREFIX_PATH
    PATH_SUFFIXES Torch share/cmake/Torch lib/cmake/Torch
    NO_DEFAULT_PATH NO_CACHE)
  if(from_prefix)
    set(${result} "${from_prefix}" PARENT_SCOPE)
    return()
  endif()

  set(pythons "")
  find_program(python_on_path python3 NO_CACHE)
  if(python_on_path)
    list(APPEND pythons "${python_on_path}")
  endif()
  # bootstrap.sh removes the file `incomplete` once all packages are installed.
  set(venv "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../.venv")
  if(EXISTS "${venv}/bin/python" AND NOT EXISTS "${venv}/incomplete")
    list(APPEND pythons "${venv}/bin/python")
  endif()
  foreach(python IN LISTS pythons)
    mini_libtorch_of_python("${python}" torch_dir)
    mini_is_usable_libtorch("${torch_dir}" usable)
    if(usable)
      set(${result} "${torch_dir}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${result} "" PARENT_SCOPE)
endfunction()

mini_find_libtorch(torch_dir)
if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  if(NOT EXISTS "${torch_dir}/TorchConfig.cmake")
    message(FATAL_ERROR "LibTorch not found: set Torch_DIR to the folder of its TorchConfig.cmake")
  endif()
  message(STATUS "LibTorch: ${torch_dir}")
elseif(torch_dir)
  set(Torch_DIR "${torch_dir}" CACHE PATH "The folder of LibTorch's TorchConfig.cmake")
endif()
