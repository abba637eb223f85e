// SPDX-License-Identifier: MIT
// The command line of train_gpt: an option for each setting of a run, and what they come to.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "gpt/run_folder.h"
#include "mini/gpt.h"

namespace mini::app {

/// Gives `app` an option for each setting of `config`.
void add_run_options(CLI::App& app, RunConfig& config);

/// The given configuration, with the defaults that depend on other options or on the machine.
/// Throws UsageError for settings that are each right and wrong together.
RunConfig new_config(const RunConfig& given, const CLI::App& app);

/// The given configuration, with what the model to begin with decides.
/// Throws std::runtime_error if an option says something else than that model.
RunConfig config_with(const GPTOptions& model, const RunConfig& given, const CLI::App& app);

/// The configuration of the run that is to go on.
/// Throws std::runtime_error if an option says something else than the run's own.
RunConfig resumed_config(const std::string& run, const RunConfig& given, const CLI::App& app);

}  // namespace mini::app
