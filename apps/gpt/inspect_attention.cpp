// SPDX-License-Identifier: MIT
// Measures the attention of each head of a model, without and with the division by the square root
// of the head size.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "common/app.h"
#include "common/keep_memory.h"
#include "gpt/heads_page.h"
#include "gpt/inspection.h"
#include "mini/text.h"

namespace mini::app {
namespace {

using Head = InspectedHead;

struct Options {
  std::string model;
  std::string prompt;
  std::string prompt_file;
  std::vector<int64_t> prompt_tokens;
  std::string tensors;
  bool causal = false;
};

// (1, T)
at::Tensor prompt_tokens(const Options& options, const Tokenizer& tokenizer) {
  if (!options.prompt_file.empty()) {
    return tokenizer.encode(TextFile(options.prompt_file).text()).unsqueeze(0);
  }
  if (!options.prompt_tokens.empty()) {
    return prompt_of_tokens(tokenizer, options.prompt_tokens);
  }
  return encode_prompt(tokenizer, options.prompt);
}

Inspection inspect(const Options& options) {
  if (!options.tensors.empty()) {
    return inspect_tensors(options.tensors, options.causal);
  }
  TrainedModel trained = load_trained_model(options.model);
  return inspect_model(trained, prompt_tokens(options, trained.tokenizer));
}

std::string described(const Inspection& inspection) {
  return fmt::format("{} of {} of size {}, {}{}", counted(inspection.layers, "layer"),
                     counted(inspection.heads, "head"), inspection.head_size,
                     counted(inspection.tokens, "token"), inspection.causal ? ", causal" : "") +
         (inspection.undivided ? "\nThe model does not divide its scores." : "");
}

std::vector<const Head*> finite_heads(const Inspection& inspection) {
  std::vector<const Head*> heads;
  for (const Head& head : inspection.views) {
    if (head.is_finite()) heads.push_back(&head);
  }
  return heads;
}

double mean(const std::vector<const Head*>& heads, HeadView Head::*view,
            double HeadFigures::*figure) {
  double total = 0;
  for (const Head* head : heads) {
    total += (head->*view).figures.*figure;
  }
  return total / static_cast<double>(heads.size());
}

// The head that the division changes most, or null if there are no heads.
const Head* most_changed(const std::vector<const Head*>& heads) {
  const auto most = std::max_element(heads.begin(), heads.end(), [](const Head* a, const Head* b) {
    return a->change() < b->change();
  });
  return most == heads.end() ? nullptr : *most;
}

// Decimals of a share in percent. Without decimals, all heads with nearly even weights would read
// 99 or 100 %.
int share_digits(const Inspection& inspection) {
  const double share = mean(finite_heads(inspection), &Head::scaled, &HeadFigures::entropy_share);
  return share >= 0.9985 ? 2 : share >= 0.985 ? 1 : 0;
}

std::string figures_text(const HeadFigures& f, int share_digits) {
  return fmt::format("{:8.3f} {:6.{}f} % {:6.3f} {:9.2f}", f.entropy, 100 * f.entropy_share,
                     share_digits, f.peak, f.distance);
}

// A summary of all heads.
std::string conclusion(const Inspection& inspection) {
  const std::vector<const Head*> heads = finite_heads(inspection);
  if (heads.empty()) {
    return "The weights are not finite: there is nothing to compare.\n";
  }
  const auto share = [&](double number) {
    return fmt::format("{:.{}f} %", 100 * number, share_digits(inspection));
  };
  const auto of_all = [&](HeadView Head::*view, double HeadFigures::*figure) {
    return mean(heads, view, figure);
  };
  std::string text = fmt::format(
      "Averaged over the heads, the division by {:.2f} changes the entropy from {} to {} of\n"
      "that of even weights, and the peak from {:.2f} to {:.2f}.\n",
      inspection.divisor, share(of_all(&Head::unscaled, &HeadFigures::entropy_share)),
      share(of_all(&Head::scaled, &HeadFigures::entropy_share)),
      of_all(&Head::unscaled, &HeadFigures::peak), of_all(&Head::scaled, &HeadFigures::peak));
  if (heads.size() > 1) {
    const Head& changed = *most_changed(heads);
    text += fmt::format("Head {} of layer {} changes most, from {} to {}.\n", changed.head,
                        changed.layer, share(changed.unscaled.figures.entropy_share),
                        share(changed.scaled.figures.entropy_share));
    const auto [nearest, farthest] =
        std::minmax_element(heads.begin(), heads.end(), [](const Head* a, const Head* b) {
          return a->scaled.figures.distance < b->scaled.figures.distance;
        });
    text += fmt::format(
        "With the division, the distance ranges from {:.2f} tokens in head {} of layer {}\n"
        "to {:.2f} tokens in head {} of layer {}.\n",
        (*nearest)->scaled.figures.distance, (*nearest)->head, (*nearest)->layer,
        (*farthest)->scaled.figures.distance, (*farthest)->head, (*farthest)->layer);
  }
  return text;
}

std::string to_text(const Inspection& inspection) {
  std::string text = described(inspection) + "\n\n";
  const std::string columns =
      fmt::format("{:>8} {:>8} {:>6} {:>9}", "entropy", "of even", "peak", "distance");
  text +=
      fmt::format("{:13}{:<36}divided by {:.2f}\n", "", "without the division", inspection.divisor);
  text += fmt::format("layer  head {0}   {0}\n", columns);
  const int digits = share_digits(inspection);
  for (const Head& head : inspection.views) {
    text += fmt::format("{:5} {:5} {}   {}\n", head.layer, head.head,
                        figures_text(head.unscaled.figures, digits),
                        figures_text(head.scaled.figures, digits));
  }
  text +=
      "\nAll figures are means over the queries. entropy: in nats. of even: the entropy divided "
      "by\n"
      "that of even weights on the visible keys. peak: the largest weight. distance: the weighted\n"
      "mean number of tokens from the query back to its keys.\n\n";
  return text + conclusion(inspection);
}

Json number(double value) { return tensor_json(at::scalar_tensor(value, at::kDouble)); }

Json to_json(const HeadFigures& f) {
  return {{"entropy", number(f.entropy)},
          {"entropy_share", number(f.entropy_share)},
          {"peak", number(f.peak)},
          {"distance", number(f.distance)}};
}

Json sizes_json(const Inspection& inspection) {
  return {{"layers", inspection.layers},
          {"heads", inspection.heads},
          {"head_size", inspection.head_size},
          {"tokens", inspection.tokens},
          {"causal", inspection.causal}};
}

Json to_json(const Inspection& inspection) {
  Json json = sizes_json(inspection);
  json["divisor"] = inspection.divisor;
  json["undivided"] = inspection.undivided;
  json["attention"] = Json::array();
  for (const Head& head : inspection.views) {
    json["attention"].push_back({{"layer", head.layer},
                                 {"head", head.head},
                                 {"unscaled", to_json(head.unscaled.figures)},
                                 {"scaled", to_json(head.scaled.figures)}});
  }
  return json;
}

Table to_table(const Inspection& inspection) {
  const std::string divided =
      inspection.divides_by_root() ? "sqrt(head_size)" : fmt::format("{}", inspection.divisor);
  Table table{{"layer", "head", "division", "entropy", "entropy_share", "peak", "distance"}, {}};
  for (const Head& head : inspection.views) {
    for (const auto& [division, view] :
         {std::pair("none", &head.unscaled), {divided.c_str(), &head.scaled}}) {
      const HeadFigures& f = view->figures;
      table.rows.push_back({head.layer, head.head, division, number(f.entropy),
                            number(f.entropy_share), number(f.peak), number(f.distance)});
    }
  }
  return table;
}

std::string to_html(const Inspection& inspection) {
  Json data = sizes_json(inspection);
  data["description"] = described(inspection);
  data["divided"] = inspection.divides_by_root()
                        ? fmt::format("√{} = {:.2f}", inspection.head_size, inspection.divisor)
                        : fmt::format("{:.4g}", inspection.divisor);
  data["values_each"] = inspection.values_each();
  data["texts"] = inspection.texts;
  data["share_digits"] = share_digits(inspection);
  data["conclusion"] = conclusion(inspection);
  const Head* changed = most_changed(finite_heads(inspection));
  for (const Head& head : inspection.views) {
    Json entry = {{"layer", head.layer}, {"head", head.head}, {"changes_most", &head == changed}};
    for (const auto& [name, view] :
         {std::pair("unscaled", &head.unscaled), {"scaled", &head.scaled}}) {
      entry[name] = to_json(view->figures);
      entry[name]["weights"] = packed_cells(view->weights, inspection.causal);
    }
    data["views"].push_back(entry);
  }
  return heads_page(data);
}

void add_options(App& app, Options& options) {
  CLI::Option* model =
      app.add_option("--model", options.model, kModelHelp)->check(file_name())->type_name("MODEL");
  CLI::Option* prompt =
      app.add_option("--prompt", options.prompt, "Text that the model reads")->needs(model);
  CLI::Option* file = app.add_option("--prompt-file", options.prompt_file, "File with the text")
                          ->check(file_name())
                          ->type_name("FILE")
                          ->needs(model)
                          ->excludes(prompt);
  add_list(app, "--prompt-tokens", options.prompt_tokens,
           "Token ids that the model reads, such as 1,2,3", whole_number())
      ->needs(model)
      ->excludes(prompt)
      ->excludes(file);
  CLI::Option* tensors =
      app.add_option("--tensors", options.tensors,
                     "Safetensors file with queries q and keys k of equal shape, (layers, heads, "
                     "T, hs), (heads, T, hs) or (T, hs), in float32, float64, bfloat16 or float16; "
                     "other tensors are ignored")
          ->check(file_name())
          ->type_name("FILE")
          ->excludes(model);
  app.add_flag("--causal", options.causal,
               "Hide every key to the right of its query; the heads of a model always do")
      ->needs(tensors);
}

}  // namespace
}  // namespace mini::app

int main(int argc, char** argv) {
  using namespace mini::app;
  Options options;
  App app("inspect_attention",
          "Measures the attention weights of each head: entropy, peak and distance,\n"
          "without and with the division by the square root of the head size.",
          {Format::kHtml});
  add_options(app, options);
  app.footer(
      "Example: inspect_attention --model run --prompt 'To be, or not to be' \\\n"
      "           --format html --output heads.html");
  return app.run(argc, argv, [&] {
    keep_freed_memory();
    if (options.tensors.empty() && options.model.empty()) {
      throw UsageError("expected --model or --tensors");
    }
    if (!options.model.empty() && app.count("--prompt") == 0 && options.prompt_file.empty() &&
        options.prompt_tokens.empty()) {
      throw UsageError("--model: expected --prompt, --prompt-file or --prompt-tokens");
    }
    const torch::NoGradGuard no_grad;
    const Inspection inspection = inspect(options);
    return Report{.text = to_text(inspection),
                  .json = to_json(inspection),
                  .table = to_table(inspection),
                  .svg = {},
                  .html = [inspection] { return to_html(inspection); }};
  });
}
