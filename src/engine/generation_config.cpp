#include "engine/generation_config.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace coprime {
namespace {

using nlohmann::json;

constexpr std::uintmax_t kMaxBytes = 1 << 20;
constexpr int kMaxDepth = 16;

json read_object(const std::filesystem::path& path) {
  if (std::filesystem::file_size(path) > kMaxBytes)
    fail(ErrorKind::kModel, "{}: larger than {} bytes", path.string(), kMaxBytes);
  std::ifstream file(path);
  try {
    json object = json::parse(file, [](int depth, json::parse_event_t, json&) { return depth <= kMaxDepth; });
    if (object.is_object()) return object;
  } catch (const json::exception& error) {
    fail(ErrorKind::kModel, "{}: not valid JSON ({}): fetch the file again", path.string(), error.what());
  }
  fail(ErrorKind::kModel, "{}: expected a JSON object", path.string());
}

void read_eos(const json& object, const std::filesystem::path& path, std::vector<int32_t>& eos) {
  if (!object.contains("eos_token_id") || object["eos_token_id"].is_null()) return;
  const json& value = object["eos_token_id"];
  for (const json& id : value.is_array() ? value : json::array({value})) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX)
      fail(ErrorKind::kModel, "{}: eos_token_id: found {}, expected token ids", path.string(), id.dump());
    eos.push_back(id.get<int32_t>());
  }
}

double read_number(const json& object, const std::filesystem::path& path, const char* key, double otherwise,
                   double least, double most) {
  if (!object.contains(key) || object[key].is_null()) return otherwise;
  const json& value = object[key];
  if (!value.is_number() || !(value >= least && value <= most)) {
    fail(ErrorKind::kModel, "{}: {}: found {}, expected a number from {} to {}", path.string(), key, value.dump(),
         least, most);
  }
  return value.get<double>();
}

}  // namespace

GenerationConfig read_generation_config(const std::filesystem::path& directory) {
  GenerationConfig config;
  const auto path = directory / "generation_config.json", model_path = directory / "config.json";
  if (std::filesystem::exists(path)) {
    const json object = read_object(path);
    read_eos(object, path, config.eos);
    SamplingOptions& sampling = config.sampling;
    const bool states_sampling = object.contains("temperature") || object.contains("top_k") || object.contains("top_p");
    const bool do_sample = object.contains("do_sample") ? object["do_sample"] == true : states_sampling;
    sampling.temperature = do_sample ? read_number(object, path, "temperature", 1.0, 0, 100) : 0;
    sampling.top_k = static_cast<int>(read_number(object, path, "top_k", 0, 0, 1 << 24));
    sampling.top_p = read_number(object, path, "top_p", 1, 0, 1);
    sampling.min_p = read_number(object, path, "min_p", 0, 0, 1);
  }
  if (config.eos.empty() && std::filesystem::exists(model_path)) {
    const json object = read_object(model_path);
    read_eos(object, model_path, config.eos);
    if (config.eos.empty() && object.contains("text_config") && object["text_config"].is_object())
      read_eos(object["text_config"], model_path, config.eos);
  }
  return config;
}

}  // namespace coprime
