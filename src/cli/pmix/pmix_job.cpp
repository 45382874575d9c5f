#include "cli/pmix/pmix_job.h"

#include <dlfcn.h>
#include <pmix.h>

#include <array>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace coprime {
namespace {

constexpr const char* kKey = "coprime.front";
constexpr int kLastWordSeconds = 10;

// Each entry is the PMIx_ function of its name.
struct Library {
  decltype(&PMIx_Init) init;
  decltype(&PMIx_Finalize) finalize;
  decltype(&PMIx_Put) put;
  decltype(&PMIx_Commit) commit;
  decltype(&PMIx_Fence) fence;
  decltype(&PMIx_Get) get;
  decltype(&PMIx_Error_string) error_string;
};

std::optional<Library> load(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  if (library == nullptr) return std::nullopt;
  Library table;
  bool whole = true;
  const auto resolve = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    whole = whole && function != nullptr;
  };
  resolve("PMIx_Init", table.init);
  resolve("PMIx_Finalize", table.finalize);
  resolve("PMIx_Put", table.put);
  resolve("PMIx_Commit", table.commit);
  resolve("PMIx_Fence", table.fence);
  resolve("PMIx_Get", table.get);
  resolve("PMIx_Error_string", table.error_string);
  return whole ? std::optional(table) : std::nullopt;
}

class Job final : public PmixJob {
 public:
  Job(const Library& library, const pmix_proc_t& me) : library_(library), me_(me) {}
  ~Job() override {
    try {
      if (me_.rank == 0 && !given_) give({}, kLastWordSeconds);
    } catch (const Error&) {
      // The others are gone as well, or will hear of it from the launcher.
    }
    leave();
  }

  void give(const std::string& text, int timeout_s) override {
    given_ = true;
    std::string copy = text;
    pmix_value_t value = {};
    value.type = PMIX_STRING;
    value.data.string = copy.data();
    check("PMIx_Put", library_.put(PMIX_GLOBAL, kKey, &value));
    check("PMIx_Commit", library_.commit());
    meet(timeout_s);
    leave();
  }

  std::string take(int timeout_s) override {
    meet(timeout_s);
    pmix_proc_t front = me_;
    front.rank = 0;
    pmix_value_t* value = nullptr;
    check("PMIx_Get", library_.get(&front, kKey, nullptr, 0, &value));
    if (value->type != PMIX_STRING) fail(ErrorKind::kLink, "PMIx_Get: a value of type {}", value->type);
    const std::string text = value->data.string == nullptr ? "" : value->data.string;  // never given back: once
    leave();
    return text;
  }

 private:
  void leave() {
    if (!std::exchange(left_, true)) library_.finalize(nullptr, 0);
  }

  void meet(int timeout_s) {
    std::array<pmix_info_t, 2> wishes = {};
    std::strncpy(wishes[0].key, PMIX_COLLECT_DATA, PMIX_MAX_KEYLEN);
    wishes[0].value.type = PMIX_BOOL;
    wishes[0].value.data.flag = true;
    std::strncpy(wishes[1].key, PMIX_TIMEOUT, PMIX_MAX_KEYLEN);
    wishes[1].value.type = PMIX_INT;
    wishes[1].value.data.integer = timeout_s;
    pmix_proc_t all = me_;
    all.rank = PMIX_RANK_WILDCARD;
    check("PMIx_Fence", library_.fence(&all, 1, wishes.data(), wishes.size()));
  }

  void check(const char* call, pmix_status_t status) const {
    if (status == PMIX_SUCCESS) return;
    fail(ErrorKind::kLink, "{} failed ({}): give --listen and --key-file, or --launcher none", call,
         library_.error_string(status));
  }

  const Library library_;
  const pmix_proc_t me_;
  bool given_ = false, left_ = false;
};

}  // namespace

std::unique_ptr<PmixJob> PmixJob::join(const Variable& variable, const std::string& path) {
  const char* const job = variable("PMIX_NAMESPACE");
  if (job == nullptr || variable("PMIX_RANK") == nullptr) return nullptr;
  const std::optional<Library> library = load(path);
  if (!library) return nullptr;
  pmix_proc_t me = {};
  if (library->init(&me, nullptr, 0) != PMIX_SUCCESS) return nullptr;
  auto joined = std::make_unique<Job>(*library, me);
  if (std::strncmp(me.nspace, job, PMIX_MAX_NSLEN) != 0) return nullptr;  // a job of its own, without a launcher
  return joined;
}

}  // namespace coprime
