# A page as one string: its styles and its scripts in place of the links to them.
#   cmake -DPAGE=page.html -DCOMMON=FOLDER -DFUNCTION=page_source -DOUTPUT=page_source.cpp -P embed.cmake
#
# A link is to a file beside the page, or to one in the folder COMMON.
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
