# Checks that README.md quotes examples/train_head.cpp and the output of compare_weights exactly.
#   cmake -DSOURCE=... -DCOMPARE_WEIGHTS=... -P readme.cmake
cmake_minimum_required(VERSION 3.25)

file(READ "${SOURCE}/README.md" readme)
function(require_quoted what text)
  string(FIND "${readme}" "${text}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "README.md does not quote ${what} exactly:\n${text}")
  endif()
endfunction()

file(READ "${SOURCE}/examples/train_head.cpp" program)
require_quoted("examples/train_head.cpp" "${program}")

execute_process(COMMAND "${COMPARE_WEIGHTS}" OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
require_quoted("the output of compare_weights" "${output}")
