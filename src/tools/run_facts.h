// What decides the answers of a run of `coprime eval`: so that one that was stopped goes on as it began, and two that
// are compared are known for what they are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/eval.h"

namespace coprime {

using RunFacts = std::vector<std::pair<std::string, std::string>>;  // name and value, in the order of the file

// "data" and "model" are hashes: of the questions, and of the model's headers, first blocks, metadata, tokenizer and
// template; "plan", of the shard plan; "ranks", "max_tokens", "chat_options"; then the command's own `settings`. No
// path is among them: the same files give the same facts wherever they lie. Reads the first 4 KiB of every tensor.
RunFacts run_facts(const EvalOptions& options, uint64_t data_hash, const RunFacts& settings);

// In one line: "data 1f2e..., model ...".
std::string one_line(const RunFacts& facts);

// The file beside a results file that holds its run's facts, as a JSON object of texts, and how the run ended.
std::filesystem::path facts_path(const std::filesystem::path& results);
std::string facts_json(const RunFacts& facts, const EvalRun& run);
// Empty where there is none. Error(kModel) for a file that is not such an object.
RunFacts read_facts(const std::filesystem::path& results);

// What a person who compares the two must know: "other questions ...", and the settings that differ. Lines; empty if
// nothing differs, or if `base` is empty.
std::string facts_that_differ(const RunFacts& base, const RunFacts& here);

}  // namespace coprime
