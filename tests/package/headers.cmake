# Checks what the public headers include and define, with the compiler's -M and -dM.
#   cmake -DCOMPILER=... -DINCLUDES=a|b|c -DHEADERS=... -DWORK=... -P headers.cmake
cmake_minimum_required(VERSION 3.25)

string(REPLACE "|" ";" INCLUDES "${INCLUDES}")
list(TRANSFORM INCLUDES PREPEND "-I")

function(preprocess result text)
  file(WRITE "${WORK}/probe.cpp" "${text}")
  execute_process(COMMAND "${COMPILER}" -std=c++20 ${INCLUDES} ${ARGN} "${WORK}/probe.cpp"
    OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
  set(${result} "${output}" PARENT_SCOPE)
endfunction()

# ATen/core/Tensor.h compiles in 2 s, torch/nn/module.h in 10 s, torch/torch.h in 16 s.
preprocess(dependencies "#include <mini/attention.h>\n#include <mini/heat_map.h>\n" -M)
string(REGEX MATCHALL "[^ \n\\]+" dependencies "${dependencies}")
foreach(file IN LISTS dependencies)
  if(file MATCHES "include/ATen/ATen\\.h$" OR
     (file MATCHES "include/torch/" AND NOT file MATCHES "include/torch/headeronly/"))
    message(FATAL_ERROR "mini/attention.h or mini/heat_map.h includes ${file}")
  endif()
endforeach()
if(NOT dependencies MATCHES "ATen/core/Tensor\\.h")
  message(FATAL_ERROR "the compiler listed no dependencies: ${dependencies}")
endif()

preprocess(dependencies "#include <mini/line_chart.h>\n" -M)
if(dependencies MATCHES "include/(ATen|c10|torch)/")
  message(FATAL_ERROR "mini/line_chart.h includes LibTorch: ${dependencies}")
endif()

# Our macros begin with MINI_. Reserved names, such as _X, belong to the standard library.
preprocess(before "#include <torch/torch.h>\n" -E -dM)
preprocess(after "#include <torch/torch.h>\n#include <mini/mini.h>\n" -E -dM)
string(REGEX MATCHALL "#define [A-Za-z0-9_]+" before "${before}")
string(REGEX MATCHALL "#define [A-Za-z0-9_]+" after "${after}")
list(REMOVE_ITEM after ${before})
list(FILTER after EXCLUDE REGEX "#define (MINI_|_[A-Z_])")
if(after)
  message(FATAL_ERROR "mini/mini.h defines macros that do not begin with MINI_: ${after}")
endif()
