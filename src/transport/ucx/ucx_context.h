// libucp's calls by name, and a context of it.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "transport/ucx/ucx.h"

namespace coprime {

// Each entry is the ucp_ function of its name.
struct UcxLibrary {
  decltype(&ucp_config_read) config_read;
  decltype(&ucp_config_modify) config_modify;
  decltype(&ucp_config_release) config_release;
  decltype(&ucp_init_version) init_version;
  decltype(&ucp_cleanup) cleanup;
  decltype(&ucp_worker_create) worker_create;
  decltype(&ucp_worker_destroy) worker_destroy;
  decltype(&ucp_worker_progress) worker_progress;
  decltype(&ucp_worker_get_address) worker_get_address;
  decltype(&ucp_worker_release_address) worker_release_address;
  decltype(&ucp_ep_create) ep_create;
  decltype(&ucp_ep_close_nbx) ep_close_nbx;
  decltype(&ucp_tag_send_nbx) tag_send_nbx;
  decltype(&ucp_tag_recv_nbx) tag_recv_nbx;
  decltype(&ucp_request_check_status) request_check_status;
  decltype(&ucp_request_cancel) request_cancel;
  decltype(&ucp_request_free) request_free;
  decltype(&ucs_status_string) status_string;
};

class UcxContext {
 public:
  // Error(kLink).
  explicit UcxContext(const std::string& library);
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;
  ~UcxContext();

  const UcxLibrary& library() const { return library_; }
  ucp_context_h get() const { return context_; }

 private:
  UcxLibrary library_;
  ucp_context_h context_ = nullptr;
};

}  // namespace coprime
