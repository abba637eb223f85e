# Writes a C++ file with a function that returns a page as one string. The styles and scripts replace
# the links to them.
#   cmake -DPAGE=FILE.html -DCOMMON=FOLDER -DFUNCTION=NAME -DOUTPUT=FILE.cpp -P embed.cmake
#
# The linked files are in the folder of the page or in COMMON.
cmake_minimum_required(VERSION 3.25)

cmake_path(GET PAGE PARENT_PATH folder)
file(READ "${PAGE}" html)
function(embed before after element)
  string(REGEX MATCHALL "${before}[a-z]+[.][a-z]+${after}" links "${html}")
  if(NOT links)
    message(FATAL_ERROR "${PAGE} has no ${before}...${after}")
  endif()
  foreach(link ${links})
    string(REGEX MATCH "[a-z]+[.](css|js)" name "${link}")
    if(EXISTS "${folder}/${name}")
      file(READ "${folder}/${name}" content)
    else()
      file(READ "${COMMON}/${name}" content)
    endif()
    string(REPLACE "${link}" "<${element}>\n${content}</${element}>" html "${html}")
  endforeach()
  set(html "${html}" PARENT_SCOPE)
endfunction()
embed("<link rel=\"stylesheet\" href=\"" "\">" style)
embed("<script src=\"" "\"></script>" script)

file(WRITE "${OUTPUT}" "#include <string_view>

namespace mini::app {

std::string_view ${FUNCTION}() { return R\"page(${html})page\"; }

}  // namespace mini::app
")
