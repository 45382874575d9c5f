// Stands for this folder in a build without libibverbs' header (CMake chooses): no device ever opens.
#include "base/check.h"
#include "base/error.h"
#include "transport/verbs/verbs.h"

namespace coprime {

class VerbsDevice {};

std::shared_ptr<VerbsDevice> open_verbs_device(const VerbsOptions&) {
  fail(ErrorKind::kLink, "this program was built without verbs: install libibverbs-dev and build again");
}

VerbsLink connect_verbs(std::shared_ptr<VerbsDevice>, const VerbsOptions&, int, int, int, int) {
  COPRIME_CHECK(false, "there is no verbs device in a build without verbs");
  return {};
}

}  // namespace coprime
