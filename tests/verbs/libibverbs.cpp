// A libibverbs for tests of the whole program, in place of the real one: a host with one RDMA device that opens and has
// an active port, and makes no queue pair. A byte goes to the file FAKE_VERBS_ATTEMPTS for each one that it was to
// make.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#undef ibv_query_port
#undef ibv_reg_mr

namespace {
ibv_device device = {};
ibv_context context = {};
ibv_pd domain = {};
}  // namespace

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  device.transport_type = IBV_TRANSPORT_IB;
  *count = 1;
  return new ibv_device* [2] { &device, nullptr };
}
void ibv_free_device_list(ibv_device** list) { delete[] list; }
const char* ibv_get_device_name(ibv_device*) { return "broken0"; }
ibv_context* ibv_open_device(ibv_device*) { return &context; }
int ibv_close_device(ibv_context*) { return 0; }
int ibv_query_port(ibv_context*, uint8_t, _compat_ibv_port_attr* compatible) {
  auto& port = *reinterpret_cast<ibv_port_attr*>(compatible);
  port.state = IBV_PORT_ACTIVE;
  port.max_mtu = port.active_mtu = IBV_MTU_4096;
  port.gid_tbl_len = 1;
  port.max_msg_sz = 1 << 30;
  port.link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}
int _ibv_query_gid_ex(ibv_context*, uint32_t, uint32_t, ibv_gid_entry* entry, uint32_t, size_t) {
  *entry = {};
  const uint8_t address[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
  std::memcpy(entry->gid.raw, address, sizeof address);
  entry->gid_type = IBV_GID_TYPE_ROCE_V2;
  return 0;
}
ibv_pd* ibv_alloc_pd(ibv_context*) { return &domain; }
int ibv_dealloc_pd(ibv_pd*) { return 0; }
ibv_cq* ibv_create_cq(ibv_context*, int, void*, ibv_comp_channel*, int) {
  if (const char* file = std::getenv("FAKE_VERBS_ATTEMPTS")) std::ofstream(file, std::ios::app) << '.';
  errno = ENOMEM;
  return nullptr;
}
// Nothing calls these without a completion queue.
ibv_mr* ibv_reg_mr(ibv_pd*, void*, size_t, int) { return nullptr; }
int ibv_dereg_mr(ibv_mr*) { return 0; }
int ibv_destroy_cq(ibv_cq*) { return 0; }
ibv_qp* ibv_create_qp(ibv_pd*, ibv_qp_init_attr*) { return nullptr; }
int ibv_modify_qp(ibv_qp*, ibv_qp_attr*, int) { return EINVAL; }
int ibv_destroy_qp(ibv_qp*) { return 0; }
const char* ibv_wc_status_str(ibv_wc_status) { return "success"; }

}  // extern "C"
