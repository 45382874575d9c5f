#include "tools/synth.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/output_folder.h"
#include "base/unique_fd.h"
#include "tools/synth_config.h"

namespace coprime {
namespace {

constexpr size_t kPartBytes = 1 << 20;  // that a thread makes at a time: of whole blocks of every content

[[noreturn]] void cannot_write(const std::filesystem::path& path, int error) {
  fail(ErrorKind::kModel, "{}: cannot be written: {}", path.string(), errno_text(error));
}

// A file of the new checkpoint, written at any place by any thread.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path)
      : path_(std::move(path)), fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    if (!fd_) cannot_write(path_, errno);
  }
  void write(int64_t at, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t done = ::pwrite(fd_.get(), bytes.data(), bytes.size(), at);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) cannot_write(path_, errno);
      bytes = bytes.subspan(static_cast<size_t>(done));
      at += done;
    }
  }
  // The rest, as a hole.
  void extend(int64_t bytes) const {
    if (::ftruncate(fd_.get(), bytes) != 0) cannot_write(path_, errno);
  }

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
};

void check_room(const std::filesystem::path& folder, int64_t bytes) {
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  const int64_t margin = 64 << 20;
  if (error || static_cast<int64_t>(space.available) >= bytes + margin) return;
  fail(ErrorKind::kModel,
       "{}: the weights take {:.1f} GB, and {:.1f} GB are free there: write elsewhere, or fewer --layers, or "
       "--headers-only",
       folder.string(), static_cast<double>(bytes) / 1e9, static_cast<double>(space.available) / 1e9);
}

// Bytes of an element as the file's order counts them: wide types first.
int width_of(const SynthTensor& tensor) { return content_bytes(tensor.content.kind); }

struct Part {
  const OutputFile* file;
  const SynthTensor* tensor;
  int64_t at;  // of the tensor in the file
};

// Writes the header, and says where each tensor stands.
void lay_out(const SynthFile& planned, const OutputFile& file, bool headers_only, std::vector<Part>* parts) {
  std::vector<const SynthTensor*> order;
  for (const SynthTensor& tensor : planned.tensors) order.push_back(&tensor);
  std::ranges::stable_sort(order, std::greater(), [](const SynthTensor* tensor) { return width_of(*tensor); });

  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  int64_t bytes = 0;
  for (const SynthTensor* tensor : order) {
    header[tensor->name] = {
        {"dtype", tensor->type}, {"shape", tensor->shape}, {"data_offsets", {bytes, bytes + tensor->bytes()}}};
    bytes += tensor->bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  file.write(0, std::as_bytes(std::span(&length, 1)));
  file.write(8, std::as_bytes(std::span(text)));
  int64_t at = 8 + static_cast<int64_t>(length);
  file.extend(at + bytes);
  if (headers_only) return;
  for (const SynthTensor* tensor : order) {
    parts->push_back({&file, tensor, at});
    at += tensor->bytes();
  }
}

// A tensor's bytes [begin, begin + kPartBytes), or to its end.
void write_part(const Part& part, uint64_t key, int64_t begin, std::span<std::byte> buffer) {
  const int width = width_of(*part.tensor);
  const int64_t bytes = std::min<int64_t>(kPartBytes, part.tensor->bytes() - begin);
  const auto filled = buffer.first(static_cast<size_t>(bytes));
  fill_random(part.tensor->content, key, begin / width, filled);
  part.file->write(part.at + begin, filled);
}

// Threads take one part after the other; the first error ends all.
void write_parts(const std::vector<Part>& parts, const SynthRun& run) {
  struct Piece {
    size_t part;
    int64_t begin;
  };
  std::vector<Piece> pieces;
  for (size_t i = 0; i < parts.size(); ++i)
    for (int64_t begin = 0; begin < parts[i].tensor->bytes(); begin += kPartBytes) pieces.push_back({i, begin});

  std::atomic<size_t> next = 0;
  std::mutex mutex;
  size_t done = 0;
  std::exception_ptr failure;
  const auto work = [&] {
    std::vector<std::byte> buffer(kPartBytes);
    try {
      for (size_t i = next++; i < pieces.size(); i = next++) {
        const Part& part = parts[pieces[i].part];
        write_part(part, content_key(run.seed, part.tensor->name), pieces[i].begin, buffer);
        const std::lock_guard lock(mutex);
        if (run.progress) run.progress(++done, pieces.size());
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = pieces.size();
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int i = 1; i < run.threads; ++i) helpers.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

std::string index_json(const std::vector<SynthFile>& files, int64_t bytes) {
  nlohmann::json index = {{"metadata", {{"total_size", bytes}}}, {"weight_map", nlohmann::json::object()}};
  nlohmann::json& map = index["weight_map"];
  for (const SynthFile& file : files)
    for (const SynthTensor& tensor : file.tensors) map[tensor.name] = file.name;
  return index.dump(2) + "\n";
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  OutputFile(path).write(0, std::as_bytes(std::span(text)));
}

bool copy_tokenizer(const std::filesystem::path& from, const OutputFolder& folder) {
  bool tokenizer = false;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"}) {
    std::error_code error;
    if (from.empty() || !std::filesystem::is_regular_file(from / name, error)) continue;
    const auto target = folder / name;
    if (!std::filesystem::copy_file(from / name, target, error))
      fail(ErrorKind::kModel, "{}: cannot be copied to {}: {}", (from / name).string(), target.string(),
           error.message());
    tokenizer = tokenizer || std::string_view(name) == "tokenizer.json";
  }
  return tokenizer;
}

// "model.language_model.layers.3.mlp..." -> "layers-3"; "mtp..." -> "mtp"; else "outside".
std::string layer_group(const std::string& name) {
  if (name.starts_with("mtp.")) return "mtp";
  const size_t at = name.find("layers.");
  if (at == name.npos || name.starts_with("model.visual.")) return "outside";
  const size_t number = at + std::string_view("layers.").size();
  return "layers-" + name.substr(number, name.find('.', number) - number);
}

}  // namespace

std::vector<SynthFile> share_out(std::vector<SynthTensor> tensors, int64_t most_bytes, bool by_layer) {
  std::vector<SynthFile> files;
  int64_t bytes = 0;
  for (SynthTensor& tensor : tensors) {
    if (by_layer) {
      const std::string group = layer_group(tensor.name) + ".safetensors";
      auto file = std::ranges::find(files, group, &SynthFile::name);
      if (file == files.end()) file = files.insert(files.end(), {group, {}});
      file->tensors.push_back(std::move(tensor));
      continue;
    }
    if (files.empty() || bytes + tensor.bytes() > most_bytes) {
      if (files.empty() || !files.back().tensors.empty()) files.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes();
    files.back().tensors.push_back(std::move(tensor));
  }
  if (by_layer) return files;
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].name =
        files.size() == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
  }
  return files;
}

SynthReport make_checkpoint(const SynthRun& run) {
  const SynthConfig config = read_synth_config(run.source, run.layers, run.options);
  std::vector<SynthTensor> tensors = config.draft ? synth_tensors(*config.draft, run.options.format)
                                                  : synth_tensors(config.shape, config.vision, run.options);
  SynthReport report{.tensors = static_cast<int>(tensors.size())};
  for (const SynthTensor& tensor : tensors) report.bytes += tensor.bytes();
  // As Qwen shares out its FP8 releases of this family.
  const bool by_layer = run.options.format == SynthFormat::kFp8Block && !config.draft && config.vision.layers > 0;
  const std::vector<SynthFile> files = share_out(std::move(tensors), run.file_bytes, by_layer);
  report.files = static_cast<int>(files.size());

  OutputFolder folder(run.out);
  if (!run.headers_only) check_room(folder.path(), report.bytes);
  std::vector<OutputFile> outputs;
  std::vector<Part> parts;
  outputs.reserve(files.size());  // parts point into it
  for (const SynthFile& file : files) {
    outputs.emplace_back(folder / file.name);
    lay_out(file, outputs.back(), run.headers_only, &parts);
  }
  write_parts(parts, run);
  if (files.size() > 1) write_text(folder / "model.safetensors.index.json", index_json(files, report.bytes));
  report.tokenizer = copy_tokenizer(config.folder, folder);
  write_text(folder / "config.json", config.text);
  folder.finish();
  return report;
}

}  // namespace coprime
