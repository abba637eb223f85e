// SPDX-License-Identifier: MIT
// Everything, in reading order.
#pragma once

#include "mini/attention.h"
#include "mini/head.h"

#include "mini/kv_cache.h"
#include "mini/multi_head_attention.h"

#include "mini/block.h"
#include "mini/gpt.h"

#include "mini/generate.h"

#include "mini/safetensors.h"
#include "mini/state_dict.h"

#include "mini/pretrained.h"

#include "mini/tokenizer.h"

#include "mini/text.h"

#include "mini/schedule.h"

#include "mini/optimizer.h"

#include "mini/data_parallel.h"

#include "mini/checkpoint.h"

#include "mini/diagnostics.h"
#include "mini/terminal.h"

#include "mini/heat_map.h"
#include "mini/line_chart.h"
