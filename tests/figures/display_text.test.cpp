// SPDX-License-Identifier: MIT
#include "figures/display_text.h"

#include "support/support.h"

using namespace mini::detail;

TEST_CASE("printable replaces control characters and keeps other text", "[display_text]") {
  CHECK(printable("a <b> & \"c\"") == "a <b> & \"c\"");
  CHECK(printable("caf\u00e9 \u6f22 \U0001f600") == "caf\u00e9 \u6f22 \U0001f600");
  CHECK(printable("one\ntwo\t\x1b[2J\x7f") == "one\u240atwo\u2409\u241b[2J\u2421");
  CHECK(printable("\u0085\u202e\u2066\u2028\ufeff\uffff") ==
        "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd");
  CHECK(printable(std::string_view("\0", 1)) == "\u2400");
}

TEST_CASE("printable replaces each invalid byte", "[display_text]") {
  CHECK(printable("\xff"
                  "a\xc3") ==
        "\ufffd"
        "a\ufffd");
  CHECK(printable("\xe2\x82z") == "\ufffd\ufffdz");
  CHECK(printable("\xc0\x80") == "\ufffd\ufffd");            // an overlong encoding of NUL
  CHECK(printable("\xed\xa0\x80") == "\ufffd\ufffd\ufffd");  // a lone surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "\ufffd\ufffd\ufffd\ufffd");  // above U+10FFFF
  CHECK(printable("\xf0\x9f\x98\x80") == "\U0001f600");
}

TEST_CASE("a wide character fills two columns and a combining mark none", "[display_text]") {
  CHECK(display_width("") == 0);
  CHECK(display_width("abc") == 3);
  CHECK(display_width("\u00e9") == 1);
  CHECK(display_width("e\u0301") == 1);
  CHECK(display_width("\u6f22\u5b57") == 4);
  CHECK(display_width("\U0001f600") == 2);
  CHECK(display_width("\ufffd\u2026") == 2);
}

TEST_CASE("text is shortened, aligned and wrapped by display width", "[display_text]") {
  CHECK(shortened("token", 5) == "token");
  CHECK(shortened("token", 4) == "tok\u2026");
  CHECK(shortened("token", 1) == "\u2026");
  CHECK(shortened("token", 0).empty());
  CHECK(shortened("\u6f22\u5b57\u6f22", 5) == "\u6f22\u5b57\u2026");
  CHECK(shortened("\u6f22\u5b57\u6f22", 4) == "\u6f22\u2026");
  CHECK(left_aligned("\u6f22", 4) == "\u6f22  ");
  CHECK(right_aligned("\u6f22", 4) == "  \u6f22");
  CHECK(right_aligned("token", 3) == "to\u2026");
  CHECK(display_width(left_aligned("\u6f22\u5b57\u6f22", 4)) == 4);
  CHECK(wrapped("one two three", 7) == "one two\nthree\n");
  CHECK(wrapped("incomprehensible words", 8) == "incompr\u2026\nwords\n");
}

TEST_CASE("numbers of one figure share a format with enough digits", "[display_text]") {
  const auto text = [](double value, double largest, int decimals) {
    return number_text(value, number_form(largest, decimals));
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
  CHECK(number_text(1e308, {.scientific = false, .decimals = 2}).size() == 312);
}
