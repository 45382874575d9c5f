#include "transport/ucx/ucx_context.h"

#include <dlfcn.h>

#include "base/error.h"

namespace coprime {
namespace {

template <class Function>
void resolve(void* library, const std::string& path, const char* name, Function& function) {
  void* const symbol = ::dlsym(library, name);
  if (symbol == nullptr)
    fail(ErrorKind::kLink, "{} has no {}: it is no libucp, or older than 1.13; install a newer one", path, name);
  function = reinterpret_cast<Function>(symbol);
}

UcxLibrary load(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    fail(ErrorKind::kLink, "UCX does not load ({}): install libucx0", reason == nullptr ? path : reason);
  }
  UcxLibrary table;
  resolve(library, path, "ucp_config_read", table.config_read);
  resolve(library, path, "ucp_config_modify", table.config_modify);
  resolve(library, path, "ucp_config_release", table.config_release);
  resolve(library, path, "ucp_init_version", table.init_version);
  resolve(library, path, "ucp_cleanup", table.cleanup);
  resolve(library, path, "ucp_worker_create", table.worker_create);
  resolve(library, path, "ucp_worker_destroy", table.worker_destroy);
  resolve(library, path, "ucp_worker_progress", table.worker_progress);
  resolve(library, path, "ucp_worker_get_address", table.worker_get_address);
  resolve(library, path, "ucp_worker_release_address", table.worker_release_address);
  resolve(library, path, "ucp_ep_create", table.ep_create);
  resolve(library, path, "ucp_ep_close_nbx", table.ep_close_nbx);
  resolve(library, path, "ucp_tag_send_nbx", table.tag_send_nbx);
  resolve(library, path, "ucp_tag_recv_nbx", table.tag_recv_nbx);
  resolve(library, path, "ucp_request_check_status", table.request_check_status);
  resolve(library, path, "ucp_request_cancel", table.request_cancel);
  resolve(library, path, "ucp_request_free", table.request_free);
  resolve(library, path, "ucs_status_string", table.status_string);
  // It would write of peers that leave to standard output, where the text of a generation goes.
  ucs_status_t (*set_option)(const char*, const char*);
  resolve(library, path, "ucs_global_opts_set_value", set_option);
  set_option("LOG_LEVEL", "fatal");
  return table;
}

}  // namespace

UcxContext::UcxContext(const std::string& library) : library_(load(library)) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = library_.config_read(nullptr, nullptr, &config);
  if (status == UCS_OK) {
    // No message waits for the receiver to fetch it; and all are copied: UCX 1.13 ends the process when a peer dies
    // while a message goes to its TCP from where it lies. For TCP's buffers see UcxQueuePair.
    for (const auto& [name, value] :
         {std::pair{"RNDV_THRESH", "inf"}, std::pair{"ZCOPY_THRESH", "inf"}, std::pair{"SNDBUF", "1m"}}) {
      if (status == UCS_OK) status = library_.config_modify(config, name, value);
    }
    ucp_params_t params = {};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    if (status == UCS_OK) status = library_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
    library_.config_release(config);
  }
  if (status != UCS_OK) {
    fail(ErrorKind::kLink, "UCX does not start ({}): check the UCX_ variables, above all UCX_TLS and UCX_NET_DEVICES",
         library_.status_string(status));
  }
}

UcxContext::~UcxContext() {
  if (context_ != nullptr) library_.cleanup(context_);
}

std::shared_ptr<UcxContext> open_ucx(const std::string& library) { return std::make_shared<UcxContext>(library); }

}  // namespace coprime
