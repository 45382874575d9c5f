// Encoding speed, one thread: a line for each tokenizer folder and each text, the fastest of several rounds.
// scripts/compare_tokenizers runs it beside Hugging Face's.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/clock.h"
#include "tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  CLI::App app{"Encoding speed."};
  std::vector<std::string> folders, texts;
  int rounds = 5;
  app.add_option("--tokenizer", folders, "folder with tokenizer.json; may be given again")->required();
  app.add_option("--text", texts, "text file; may be given again")->required();
  app.add_option("--rounds", rounds)->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  for (const std::string& folder : folders) {
    const auto tokenizer = coprime::Tokenizer::open(folder);
    for (const std::string& path : texts) {
      std::ifstream file(path, std::ios::binary);
      const std::string text(std::istreambuf_iterator<char>(file), {});
      int64_t best_us = INT64_MAX;
      size_t tokens = 0;
      for (int round = 0; round < rounds; ++round) {
        const int64_t begin_us = coprime::now_us();
        tokens = tokenizer.encode(text, false).size();
        best_us = std::min(best_us, coprime::now_us() - begin_us);
      }
      fmt::print("{}\t{}\t{}\t{}\t{:.6f}\n", folder, path, text.size(), tokens, static_cast<double>(best_us) / 1e6);
    }
  }
}
