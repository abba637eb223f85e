// SPDX-License-Identifier: MIT
// Everything, in reading order.
#pragma once

#include "mini/attention.h"
#include "mini/head.h"

#include "mini/diagnostics.h"
