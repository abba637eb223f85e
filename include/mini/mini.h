// SPDX-License-Identifier: MIT
// Everything, in reading order.
#pragma once

#include "mini/attention.h"
#include "mini/head.h"

#include "mini/safetensors.h"
#include "mini/state_dict.h"

#include "mini/text.h"
#include "mini/tokenizer.h"

#include "mini/checkpoint.h"
#include "mini/optimizer.h"
#include "mini/schedule.h"

#include "mini/diagnostics.h"
