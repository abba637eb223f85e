// SPDX-License-Identifier: MIT
// The main function of Catch2 2, where it is not a library of its own.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
