// SPDX-License-Identifier: MIT
// The command line of train_gpt: one option for each setting of a run, and the resulting settings.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "gpt/run_config.h"
#include "mini/gpt.h"

namespace mini::app {

/// Adds an option for each setting to `app`. Parsing writes the values to `config`.
void add_run_options(CLI::App& app, RunConfig& config);

/// The configuration of a new run: `given`, with the defaults that depend on other options or on
/// the machine. Throws UsageError for conflicting options.
RunConfig new_config(const RunConfig& given, const CLI::App& app);

/// The configuration `given`, with the settings that the model `given.init_from` determines.
/// Throws std::runtime_error if an option contradicts that model.
RunConfig config_with(const GPTOptions& model, const RunConfig& given, const CLI::App& app);

/// The configuration of the run to resume: that of its config.json, with the number of threads from
/// the command line. Throws std::runtime_error if an option contradicts config.json.
RunConfig resumed_config(const std::string& run, const RunConfig& given, const CLI::App& app);

}  // namespace mini::app
