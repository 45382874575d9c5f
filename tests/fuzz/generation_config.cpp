// generation_config.json.
#include "engine/generation_config.h"

#include <fstream>

#include "fuzz.h"

namespace {

struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "coprime-fuzz-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coprime;
  static const Folder folder;
  std::ofstream(folder.path / "generation_config.json", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  return fuzz(ErrorKind::kModel, [&] { read_generation_config(folder.path); });
}
