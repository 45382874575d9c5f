#include "base/output_folder.h"

#include "base/error.h"

namespace coprime {

OutputFolder::OutputFolder(const std::filesystem::path& target)
    : target_(target.has_filename() ? target : target.parent_path()) {
  std::error_code error;
  if (std::filesystem::exists(target_, error) &&
      !(std::filesystem::is_directory(target_, error) && std::filesystem::is_empty(target_, error)))
    fail(ErrorKind::kUsage, "{} is there and holds something: name a new folder for --out", target_.string());
  const std::filesystem::path partial = target_.string() + ".partial";
  if (target_.has_parent_path()) std::filesystem::create_directories(target_.parent_path(), error);
  const bool made = std::filesystem::create_directory(partial, error);
  if (error) fail(ErrorKind::kModel, "{}: cannot be made: {}: name another folder", partial.string(), error.message());
  if (!made) {
    fail(ErrorKind::kUsage,
         "{} is there: another run writes it, or one was killed and left it: delete it, or name another folder",
         partial.string());
  }
  path_ = partial;
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

void OutputFolder::finish() {
  std::error_code error;
  std::filesystem::rename(path_, target_, error);
  if (error) fail(ErrorKind::kModel, "{}: cannot be written: {}", target_.string(), error.message());
  path_.clear();
}

}  // namespace coprime
