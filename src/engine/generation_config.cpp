#include "engine/generation_config.h"

#include "base/error.h"
#include "json/json.h"

namespace coprime {
namespace {

constexpr int64_t kMaxBytes = 4 << 20;

void read_eos(const JsonObject& object, std::vector<int32_t>& eos) {
  const auto value = object.find("eos_token_id");
  if (!value) return;
  const JsonNode node(*value, object.path("eos_token_id"));
  if (value->is_array()) {
    for (const JsonNode& id : node.items()) eos.push_back(static_cast<int32_t>(id.integer(0, INT32_MAX)));
  } else {
    eos.push_back(static_cast<int32_t>(node.integer(0, INT32_MAX)));
  }
}

double read_number(const JsonObject& object, const char* key, double otherwise, double least, double most) {
  const double number = object.number(key).value_or(otherwise);
  if (!(number >= least && number <= most))
    fail(ErrorKind::kModel, "{} is {}; expected a number from {} to {}", object.path(key), number, least, most);
  return number;
}

}  // namespace

GenerationConfig read_generation_config(const std::filesystem::path& directory) {
  GenerationConfig config;
  const auto path = directory / "generation_config.json", model_path = directory / "config.json";
  if (std::filesystem::exists(path)) {
    const JsonDocument document(read_text_file(path, kMaxBytes), path.string());
    const JsonObject object = document.root();
    read_eos(object, config.eos);
    SamplingOptions& sampling = config.sampling;
    const bool states_sampling = object.has("temperature") || object.has("top_k") || object.has("top_p");
    const bool do_sample = object.boolean("do_sample").value_or(states_sampling);
    sampling.temperature = do_sample ? read_number(object, "temperature", 1.0, 0, 100) : 0;
    sampling.top_k = static_cast<int>(object.integer("top_k", 0, 1 << 24).value_or(0));
    sampling.top_p = read_number(object, "top_p", 1, 0, 1);
    sampling.min_p = read_number(object, "min_p", 0, 0, 1);
  }
  if (config.eos.empty() && std::filesystem::exists(model_path)) {
    const JsonDocument document(read_text_file(model_path, kMaxBytes), model_path.string());
    read_eos(document.root(), config.eos);
    const auto text = document.root().object("text_config");
    if (config.eos.empty() && text) read_eos(*text, config.eos);
  }
  return config;
}

}  // namespace coprime
