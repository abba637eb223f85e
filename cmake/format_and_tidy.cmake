# Development targets: `format`, `check_format` and `tidy`, if the tools are installed.

# Versions of clang-format differ. bootstrap.sh installs the version that CI uses into .venv.
find_program(MINI_CLANG_FORMAT clang-format HINTS ${PROJECT_SOURCE_DIR}/.venv/bin)
find_program(MINI_RUN_CLANG_TIDY NAMES run-clang-tidy run-clang-tidy-14)

if(MINI_CLANG_FORMAT)
  foreach(target_and_options "format: -i" "check_format: --dry-run -Werror")
    string(REPLACE ":" ";" target_and_options ${target_and_options})
    list(GET target_and_options 0 target)
    list(GET target_and_options 1 options)
    add_custom_target(${target}
      COMMAND sh -c "git ls-files -z '*.cpp' '*.h' | xargs -0 '${MINI_CLANG_FORMAT}' ${options}"
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
      VERBATIM)
  endforeach()
else()
  # The preset `dev` builds check_format.
  foreach(target format check_format)
    add_custom_target(${target}
      COMMAND ${CMAKE_COMMAND} -E echo "${target}: clang-format is missing. Run `sh cmake/bootstrap.sh test --with format`, which installs clang-format 14 into .venv."
      COMMAND ${CMAKE_COMMAND} -E false
      VERBATIM)
  endforeach()
endif()

if(MINI_RUN_CLANG_TIDY)
  add_custom_target(tidy
    COMMAND ${MINI_RUN_CLANG_TIDY} -quiet -p ${PROJECT_BINARY_DIR} "/(src|apps|bench)/.*\\.cpp$"
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    VERBATIM USES_TERMINAL)
endif()
