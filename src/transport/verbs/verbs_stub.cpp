// Stands for this folder in a build without libibverbs' header (CMake chooses): no device ever opens.
#include "base/check.h"
#include "base/error.h"
#include "transport/verbs/verbs.h"

namespace coprime {

class VerbsDevice {};

VerbsProbe probe_verbs(const VerbsOptions&) {
  return {.usable = false, .text = "this program was built without verbs: install libibverbs-dev and build again"};
}

std::shared_ptr<VerbsDevice> open_verbs_device(const VerbsOptions& options) {
  fail(ErrorKind::kLink, "{}", probe_verbs(options).text);
}

VerbsLink connect_verbs(std::shared_ptr<VerbsDevice>, const VerbsOptions&, int, int, int, int) {
  COPRIME_CHECK(false, "there is no verbs device in a build without verbs");
  return {};
}

}  // namespace coprime
