// SPDX-License-Identifier: MIT
// All public headers, in reading order.
#pragma once

// clang-format off
// Attention and the model
#include "mini/attention.h"
#include "mini/conformance.h"
#include "mini/head.h"
#include "mini/kv_cache.h"
#include "mini/multi_head_attention.h"
#include "mini/block.h"
#include "mini/gpt.h"
#include "mini/generate.h"
// Weights in files
#include "mini/safetensors.h"
#include "mini/state_dict.h"
#include "mini/pretrained.h"
// Training
#include "mini/tokenizer.h"
#include "mini/text.h"
#include "mini/schedule.h"
#include "mini/optimizer.h"
#include "mini/data_parallel.h"
#include "mini/checkpoint.h"
// Measures and figures
#include "mini/diagnostics.h"
#include "mini/terminal.h"
#include "mini/heat_map.h"
#include "mini/line_chart.h"
// clang-format on
