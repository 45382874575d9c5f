#include "transport/verbs/verbs_library.h"

#include <dlfcn.h>

#include <cstring>

#include "base/error.h"

namespace coprime {
namespace {

template <class Function>
Function* resolve(void* library, const std::string& path, const char* name) {
  void* const symbol = ::dlsym(library, name);
  if (symbol == nullptr) {
    fail(ErrorKind::kLink, "{} has no {}: it is no libibverbs, or older than rdma-core 33; install a newer one", path,
         name);
  }
  return reinterpret_cast<Function*>(symbol);
}

// What the header's ibv_query_port does inline: newer drivers are asked directly, since the exported function knows
// only the first fields of the attributes.
using QueryPort = int(ibv_context*, uint8_t, _compat_ibv_port_attr*);
int query_port(QueryPort* exported, ibv_context* context, uint8_t port, ibv_port_attr* attributes) {
  std::memset(attributes, 0, sizeof *attributes);
  if (verbs_context* const extended = verbs_get_ctx_op(context, query_port)) {
    return extended->query_port(context, port, attributes, sizeof *attributes);
  }
  return exported(context, port, reinterpret_cast<_compat_ibv_port_attr*>(attributes));
}

}  // namespace

VerbsLibrary load_verbs_library(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    fail(ErrorKind::kLink, "the verbs library does not load ({}): install libibverbs1 and its drivers",
         reason == nullptr ? path : reason);
  }
  VerbsLibrary table;
  table.get_device_list = resolve<ibv_device**(int*)>(library, path, "ibv_get_device_list");
  table.free_device_list = resolve<void(ibv_device**)>(library, path, "ibv_free_device_list");
  table.get_device_name = resolve<const char*(ibv_device*)>(library, path, "ibv_get_device_name");
  table.open_device = resolve<ibv_context*(ibv_device*)>(library, path, "ibv_open_device");
  table.close_device = resolve<int(ibv_context*)>(library, path, "ibv_close_device");
  auto* const exported_query_port = resolve<QueryPort>(library, path, "ibv_query_port");
  table.query_port = [exported_query_port](ibv_context* context, uint8_t port, ibv_port_attr* attributes) {
    return query_port(exported_query_port, context, port, attributes);
  };
  auto* const query_gid = resolve<int(ibv_context*, uint32_t, uint32_t, ibv_gid_entry*, uint32_t, size_t)>(
      library, path, "_ibv_query_gid_ex");
  table.query_gid = [query_gid](ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry) {
    return query_gid(context, port, index, entry, 0, sizeof *entry);
  };
  table.alloc_pd = resolve<ibv_pd*(ibv_context*)>(library, path, "ibv_alloc_pd");
  table.dealloc_pd = resolve<int(ibv_pd*)>(library, path, "ibv_dealloc_pd");
  table.reg_mr = resolve<ibv_mr*(ibv_pd*, void*, size_t, int)>(library, path, "ibv_reg_mr");
  table.dereg_mr = resolve<int(ibv_mr*)>(library, path, "ibv_dereg_mr");
  auto* const create_cq =
      resolve<ibv_cq*(ibv_context*, int, void*, ibv_comp_channel*, int)>(library, path, "ibv_create_cq");
  table.create_cq = [create_cq](ibv_context* context, int entries) {
    return create_cq(context, entries, nullptr, nullptr, 0);
  };
  table.destroy_cq = resolve<int(ibv_cq*)>(library, path, "ibv_destroy_cq");
  table.create_qp = resolve<ibv_qp*(ibv_pd*, ibv_qp_init_attr*)>(library, path, "ibv_create_qp");
  table.modify_qp = resolve<int(ibv_qp*, ibv_qp_attr*, int)>(library, path, "ibv_modify_qp");
  table.destroy_qp = resolve<int(ibv_qp*)>(library, path, "ibv_destroy_qp");
  table.status_text = resolve<const char*(ibv_wc_status)>(library, path, "ibv_wc_status_str");
  return table;
}

}  // namespace coprime
