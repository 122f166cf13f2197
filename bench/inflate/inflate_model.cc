// inflate_model: a model with the costs of a large shape and the text of a small trained model.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>

#include "bench/inflate/inflated_heads.h"
#include "bench/inflate/inflated_model.h"

int main(int argc, char** argv) {
  using tandem::InflatedShape;
  CLI::App app(
      "Writes a model of a large shape that gives the text of a small trained one: what is added "
      "is "
      "computed in full and contributes nothing (bench/inflate/inflated_model.h).",
      "inflate_model");
  std::filesystem::path from;
  std::filesystem::path to;
  std::string shape_name = "1b";
  InflatedShape own;
  app.add_option("from", from, "Folder of the small model or heads, in Hugging Face layout")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("to", to, "Folder to write; created if it is missing")->required();
  app.add_option("--shape", shape_name, "1b or 3b: Llama-3.2's; own: given by the options below")
      ->check(CLI::IsMember({"1b", "3b", "own"}))
      ->capture_default_str();
  const auto size = [&](const char* name, size_t& value, const char* help) {
    app.add_option(name, value, help)->check(CLI::PositiveNumber)->group("Own shape");
  };
  size("--vocab-size", own.vocabulary_size, "Tokens");
  size("--hidden-size", own.hidden_size, "Width");
  size("--intermediate-size", own.intermediate_size, "Width of the MLP");
  size("--layers", own.num_layers, "Layers");
  size("--heads", own.num_heads, "Number of query heads");
  size("--kv-heads", own.num_kv_heads, "Number of key and value heads");
  size("--head-dim", own.head_size, "Size of a head");
  std::filesystem::path target;
  app.add_option("--heads-of", target,
                 "FROM has heads of the small model in this folder: write heads for the model that "
                 "this one becomes")
      ->check(CLI::ExistingDirectory);
  CLI11_PARSE(app, argc, argv);

  const InflatedShape shape = shape_name == "1b"   ? tandem::Llama1B()
                              : shape_name == "3b" ? tandem::Llama3B()
                                                   : own;
  if (!target.empty()) {
    const absl::Status status = tandem::InflateHeads(from, to, target, shape);
    if (!status.ok()) std::cerr << "inflate_model: " << status.message() << "\n";
    return status.ok() ? 0 : 1;
  }
  int shown = -1;
  const absl::Status status =
      tandem::InflateModel(from, to, shape, [&](uint64_t done, uint64_t all) {
        const auto percent = static_cast<int>(100 * done / all);
        if (percent == shown) return;
        shown = percent;
        std::fprintf(stderr, "\r%3d %% of %llu MiB", percent,
                     static_cast<unsigned long long>(all >> 20));
      });
  if (shown >= 0) std::fputc('\n', stderr);
  if (!status.ok()) {
    std::cerr << "inflate_model: " << status.message() << "\n";
    return 1;
  }
  if (const auto config = tandem::ModelDescription::Load(from); config.ok()) {
    std::cout << to.string() << ": "
              << (IsExact(*config, shape)
                      ? "logits are the small model's, except for the rounding of sums"
                      : "logits differ from the small model's by the rounding of scaled weights")
              << "\n";
  }
  return 0;
}
