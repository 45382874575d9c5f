// model.safetensors.index.json beside two small files.
#include <fstream>

#include "checkpoint/checkpoint.h"
#include "fuzz.h"

namespace {

std::filesystem::path make_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "coprime-fuzz-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) std::abort();
  for (const std::string tensor : {"a", "b"}) {
    const std::vector<std::byte> bytes(4);
    const coprime::TensorToWrite written{tensor, coprime::DType::kF32, {1}, bytes};
    coprime::write_safetensors(std::filesystem::path(name) / (tensor + ".safetensors"), {&written, 1});
  }
  return name;
}

struct Folder {
  ~Folder() { std::filesystem::remove_all(path); }
  const std::filesystem::path path = make_folder();
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coprime;
  static const Folder folder;
  std::ofstream(folder.path / "model.safetensors.index.json", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  return fuzz(ErrorKind::kModel, [&] { Checkpoint::open(folder.path); });
}
