#include "cli/outputs.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "base/output_file.h"

namespace coprime {
namespace {

bool is_same(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code ignored;  // a path that leads nowhere is no other's
  return std::filesystem::equivalent(a, b, ignored);
}

bool belongs_to_model(const std::filesystem::path& file) {
  // Also what other programs read.
  constexpr std::string_view kNames[] = {"config.json",
                                         "generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "chat_template.json",
                                         "preprocessor_config.json",
                                         "processor_config.json",
                                         "video_preprocessor_config.json",
                                         "model.safetensors.index.json"};
  constexpr std::string_view kEndings[] = {".safetensors", ".gguf", ".jinja", ".model", ".bin"};
  return std::ranges::find(kEndings, file.extension().string()) != std::end(kEndings) ||
         std::ranges::find(kNames, file.filename().string()) != std::end(kNames);
}

}  // namespace

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    fail(ErrorKind::kInternal, "standard output cannot be written: {}", errno_text(errno));
}

void check_replaces(const std::string& flag, const std::filesystem::path& path, std::string_view what,
                    const std::function<bool(const std::filesystem::path&)>& is_one) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) || std::filesystem::is_empty(path, ignored) || is_one(path)) return;
  fail(ErrorKind::kUsage, "{} {}: it exists and is no {}: name another file, or remove it", flag, path.string(), what);
}

void check_output_flag(const std::string& flag, const std::filesystem::path& path,
                       const std::vector<std::filesystem::path>& inputs) {
  try {
    check_output(path);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{} {}", flag, error.what()));
  }
  if (!std::filesystem::exists(path)) return;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  for (const std::filesystem::path& input : inputs) {
    if (is_same(path, input) || (is_same(folder, input) && belongs_to_model(path)))
      fail(ErrorKind::kUsage, "{} {}: this run reads it: name another file", flag, path.string());
  }
}

}  // namespace coprime
