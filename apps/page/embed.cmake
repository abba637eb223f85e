# The page as one string: its style and its script in place of the links to them.
#   cmake -DPAGE=page.html -DOUTPUT=page_source.cpp -P embed.cmake
cmake_minimum_required(VERSION 3.25)

cmake_path(GET PAGE PARENT_PATH folder)
file(READ "${PAGE}" html)
file(READ "${folder}/page.css" css)
file(READ "${folder}/page.js" js)
function(replace_once link text)
  string(FIND "${html}" "${link}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "${PAGE} does not hold ${link}")
  endif()
  string(REPLACE "${link}" "${text}" html "${html}")
  set(html "${html}" PARENT_SCOPE)
endfunction()
replace_once("<link rel=\"stylesheet\" href=\"page.css\">" "<style>\n${css}</style>")
replace_once("<script src=\"page.js\"></script>" "<script>\n${js}</script>")

file(WRITE "${OUTPUT}" "#include <string_view>

namespace mini {

std::string_view page_source() { return R\"page(${html})page\"; }

}  // namespace mini
")
