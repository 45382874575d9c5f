// The calls of libibverbs that set up and tear down, as a table: filled from the library by name at run time, or by a
// test's fake. Posting and polling do not pass here: they go through the ops of the open context.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <string>

namespace coprime {

// Each entry has the meaning and the return value of the ibv_ function of its name.
struct VerbsLibrary {
  std::function<ibv_device**(int* count)> get_device_list;
  std::function<void(ibv_device** list)> free_device_list;
  std::function<const char*(ibv_device*)> get_device_name;
  std::function<ibv_context*(ibv_device*)> open_device;
  std::function<int(ibv_context*)> close_device;
  std::function<int(ibv_context*, uint8_t port, ibv_port_attr*)> query_port;
  std::function<int(ibv_context*, uint32_t port, uint32_t index, ibv_gid_entry*)> query_gid;  // of ibv_query_gid_ex
  std::function<ibv_pd*(ibv_context*)> alloc_pd;
  std::function<int(ibv_pd*)> dealloc_pd;
  std::function<ibv_mr*(ibv_pd*, void* address, size_t bytes, int access)> reg_mr;
  std::function<int(ibv_mr*)> dereg_mr;
  std::function<ibv_cq*(ibv_context*, int entries)> create_cq;
  std::function<int(ibv_cq*)> destroy_cq;
  std::function<ibv_qp*(ibv_pd*, ibv_qp_init_attr*)> create_qp;
  std::function<int(ibv_qp*, ibv_qp_attr*, int mask)> modify_qp;
  std::function<int(ibv_qp*)> destroy_qp;
  std::function<const char*(ibv_wc_status)> status_text;
};

// Error(kLink) when the library does not load, or lacks a call. It stays loaded until the process ends: its drivers do
// not like to be unloaded.
VerbsLibrary load_verbs_library(const std::string& path);

}  // namespace coprime
