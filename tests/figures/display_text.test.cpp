// SPDX-License-Identifier: MIT
#include "figures/display_text.h"

#include "support/support.h"

using namespace mini;

TEST_CASE("printable text does nothing to a terminal", "[display_text]") {
  CHECK(mini::detail::printable("a <b> & \"c\"") == "a <b> & \"c\"");
  CHECK(mini::detail::printable("caf\u00e9 \u6f22 \U0001f600") == "caf\u00e9 \u6f22 \U0001f600");
  CHECK(mini::detail::printable("one\ntwo\t\x1b[2J\x7f") == "one\u240atwo\u2409\u241b[2J\u2421");
  CHECK(mini::detail::printable("\u0085\u202e\u2066\u2028\ufeff\uffff") ==
        "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd");
  CHECK(mini::detail::printable(std::string_view("\0", 1)) == "\u2400");
}

TEST_CASE("what is no UTF-8 is replaced, byte by byte", "[display_text]") {
  CHECK(mini::detail::printable("\xff"
                                "a\xc3") ==
        "\ufffd"
        "a\ufffd");
  CHECK(mini::detail::printable("\xe2\x82z") == "\ufffd\ufffdz");
  CHECK(mini::detail::printable("\xc0\x80") == "\ufffd\ufffd");  // a long form of NUL
  CHECK(mini::detail::printable("\xed\xa0\x80") ==
        "\ufffd\ufffd\ufffd");  // half of a surrogate pair
  CHECK(mini::detail::printable("\xf4\x90\x80\x80") ==
        "\ufffd\ufffd\ufffd\ufffd");  // beyond U+10FFFF
  CHECK(mini::detail::printable("\xf0\x9f\x98\x80") == "\U0001f600");
}

TEST_CASE("wide characters take two columns, combining marks none", "[display_text]") {
  CHECK(mini::detail::display_width("") == 0);
  CHECK(mini::detail::display_width("abc") == 3);
  CHECK(mini::detail::display_width("\u00e9") == 1);
  CHECK(mini::detail::display_width("e\u0301") == 1);
  CHECK(mini::detail::display_width("\u6f22\u5b57") == 4);
  CHECK(mini::detail::display_width("\U0001f600") == 2);
  CHECK(mini::detail::display_width("\ufffd\u2026") == 2);
}

TEST_CASE("text is cut and aligned by columns", "[display_text]") {
  CHECK(mini::detail::shortened("token", 5) == "token");
  CHECK(mini::detail::shortened("token", 4) == "tok\u2026");
  CHECK(mini::detail::shortened("token", 1) == "\u2026");
  CHECK(mini::detail::shortened("token", 0).empty());
  CHECK(mini::detail::shortened("\u6f22\u5b57\u6f22", 5) == "\u6f22\u5b57\u2026");
  CHECK(mini::detail::shortened("\u6f22\u5b57\u6f22", 4) == "\u6f22\u2026");
  CHECK(mini::detail::left_aligned("\u6f22", 4) == "\u6f22  ");
  CHECK(mini::detail::right_aligned("\u6f22", 4) == "  \u6f22");
  CHECK(mini::detail::right_aligned("token", 3) == "to\u2026");
  CHECK(mini::detail::display_width(mini::detail::left_aligned("\u6f22\u5b57\u6f22", 4)) == 4);
  CHECK(mini::detail::wrapped("one two three", 7) == "one two\nthree\n");
  CHECK(mini::detail::wrapped("incomprehensible words", 8) == "incompr\u2026\nwords\n");
}

TEST_CASE("numbers are written alike, with digits that tell something", "[display_text]") {
  const auto text = [](double value, double largest, int decimals) {
    return mini::detail::number_text(value, mini::detail::number_form(largest, decimals));
  };
  CHECK(text(0.125, 1, 2) == "0.12");
  CHECK(text(-0.001, 1, 2) == "0.00");
  CHECK(text(3, 10, 0) == "3");
  CHECK(text(0.02, 0.03, 2) == "2.0e-02");
  CHECK(text(0.02, 0.05, 2) == "0.02");
  CHECK(text(1234567, 2e6, 2) == "1.2e+06");
  CHECK(text(12, 2e6, 0) == "1.2e+01");
  CHECK(text(0, 0, 2) == "0.00");
  CHECK(text(-1.5e300, 1.5e300, 2) == "-1.5e+300");
  CHECK(text(NAN, 1, 2) == "nan");
  CHECK(text(INFINITY, 1, 2) == "inf");
  CHECK(text(-INFINITY, 1, 2) == "-inf");
  CHECK(mini::detail::number_text(1e308, {.scientific = false, .decimals = 2}).size() == 312);
}
