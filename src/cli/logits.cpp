// coprime logits: teacher-forced logits of given ids, for comparison with other implementations.

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "engine/generation.h"

namespace coprime {
namespace {

struct Ids {
  std::vector<int64_t> shape;
  std::vector<int32_t> values;
};

Ids read_ids(const std::string& argument, int64_t vocab) {
  const size_t colon = argument.rfind(':');
  if (colon == std::string::npos) fail(ErrorKind::kUsage, "--ids {}: expected FILE.safetensors:NAME", argument);
  const std::string path = argument.substr(0, colon), name = argument.substr(colon + 1);
  const SafetensorsFile file = SafetensorsFile::open(path);
  const TensorInfo* tensor = file.find(name);
  if (tensor == nullptr)
    fail(ErrorKind::kModel, "{}: it has no tensor \"{}\": name one of its tensors in --ids", path, name);
  if ((tensor->type != DType::kI32 && tensor->type != DType::kI64) || tensor->shape.empty() ||
      tensor->shape.size() > 2) {
    fail(ErrorKind::kModel, "{}: {} is {} with {} axes, expected I32 or I64 [batch, T] or [T]", path, name,
         tensor->type_name, tensor->shape.size());
  }
  std::vector<std::byte> bytes(tensor->bytes);
  file.read(tensor->offset, bytes);
  Ids ids{tensor->shape, {}};
  const size_t width = static_cast<size_t>(dtype_bytes(tensor->type)), count = bytes.size() / width;
  for (size_t i = 0; i < count; ++i) {
    int64_t value = 0;
    if (tensor->type == DType::kI64) {
      std::memcpy(&value, bytes.data() + i * width, width);
    } else {
      int32_t narrow;
      std::memcpy(&narrow, bytes.data() + i * width, width);
      value = narrow;
    }
    if (value < 0 || value >= vocab)
      fail(ErrorKind::kModel, "{}: {}[{}] is {}, outside the vocabulary of {}: give ids of this model's tokenizer",
           path, name, i, value, vocab);
    ids.values.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

}  // namespace

void run_logits(const WorldSettings& world, const LogitsSettings& settings) {
  WorldOptions options = world.options();
  check_output_flag("--out", settings.out, {options.model, settings.ids.substr(0, settings.ids.rfind(':'))});
  const ModelShape shape = read_model_shape(options.model);
  const Ids ids = read_ids(settings.ids, shape.vocab);
  const int64_t length = ids.shape.back(), batch = ids.shape.size() == 2 ? ids.shape[0] : 1;
  if (ids.values.empty()) fail(ErrorKind::kModel, "{}: the tensor is empty: give one id at least", settings.ids);
  if (length > shape.max_positions)
    fail(ErrorKind::kUsage, "{}: rows of {} tokens, and the model's context holds {}: give shorter rows", settings.ids,
         length, shape.max_positions);

  options.context = length;
  options.sequences = static_cast<int>(std::min<int64_t>({batch, options.max_rows, 64}));
  Front front(options);
  const std::vector<float> logits = teacher_forced_logits(front, ids.values, batch, length);
  TensorToWrite tensor{"logits", DType::kF32, ids.shape, std::as_bytes(std::span(logits))};
  tensor.shape.push_back(shape.vocab);
  write_safetensors(settings.out, {&tensor, 1});
}

}  // namespace coprime
