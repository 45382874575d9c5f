// Stands for this folder in a build without UCX's header (CMake chooses): no context ever opens.
#include "base/check.h"
#include "base/error.h"
#include "transport/ucx/ucx.h"

namespace coprime {

class UcxContext {};

std::shared_ptr<UcxContext> open_ucx(const std::string&) {
  fail(ErrorKind::kLink, "this program was built without UCX: install libucx-dev and build again");
}

std::unique_ptr<QueuePair> connect_ucx(std::shared_ptr<UcxContext>, UniqueFd, uint32_t, int, int, int) {
  COPRIME_CHECK(false, "there is no UCX in a build without it");
  return {};
}

}  // namespace coprime
