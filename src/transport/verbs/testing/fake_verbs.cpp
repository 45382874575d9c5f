#include "transport/verbs/testing/fake_verbs.h"

#include <cerrno>
#include <cstring>
#include <deque>

namespace coprime {
namespace {

struct FakeContext : ibv_context {
  FakeHost* host = nullptr;
  FakeDevice* config = nullptr;
};

struct FakeQueue : ibv_cq {
  std::deque<ibv_wc> completions;
};

struct FakeListed : ibv_device {
  FakeDevice* config = nullptr;
};

struct FakeMemory : ibv_mr {};

}  // namespace

struct Message {
  std::vector<std::byte> bytes;
  uint64_t send_id = 0;
  bool signaled = true;
  std::optional<uint32_t> immediate;  // as it stands in the request
};

struct FakePair : ibv_qp {
  FakeHost* host = nullptr;
  FakeDevice* config = nullptr;
  ibv_qp_attr at = {};  // everything that was set
  uint32_t send_depth = 0, receive_depth = 0;
  bool mute = false;
  std::deque<ibv_recv_wr> receives;
  std::deque<ibv_sge> rooms;
  std::deque<Message> waiting;  // arrived without a receive, on RC
  std::optional<Message> late;

  FakeQueue& queue() { return *static_cast<FakeQueue*>(send_cq); }
};

namespace {

std::map<uint32_t, ibv_mr*>& keys_of(FakeHost& host) { return host.fabric->keys[&host]; }

void complete(FakePair& pair, uint64_t id, ibv_wc_opcode opcode, uint32_t bytes, ibv_wc_status status = IBV_WC_SUCCESS,
              std::optional<uint32_t> immediate = std::nullopt) {
  FakeQueue& queue = pair.queue();
  if (queue.completions.size() >= static_cast<size_t>(queue.cqe)) {
    pair.host->overflowed = true;
    return;
  }
  ibv_wc work = {};
  work.wr_id = id;
  work.status = status;
  work.opcode = opcode;
  work.byte_len = bytes;
  work.qp_num = pair.qp_num;
  if (immediate) {
    work.wc_flags = IBV_WC_WITH_IMM;
    work.imm_data = *immediate;
  }
  queue.completions.push_back(work);
}

void complete_send(FakePair& pair, const Message& message) {
  if (message.signaled || pair.host->completes_unsignaled) complete(pair, message.send_id, IBV_WC_SEND, 0);
}

// The pair that the sender's messages reach, or null.
FakePair* receiver_of(FakePair& sender) {
  const auto found = sender.host->fabric->pairs.find(sender.at.dest_qp_num);
  if (found == sender.host->fabric->pairs.end()) return nullptr;
  FakePair& receiver = *found->second;
  const auto& gid = receiver.config->gids.at(receiver.at.ah_attr.grh.sgid_index);
  const bool fits = receiver.state >= IBV_QPS_RTR && receiver.at.dest_qp_num == sender.qp_num &&
                    receiver.at.rq_psn == sender.at.sq_psn && receiver.qp_type == sender.qp_type &&
                    receiver.at.path_mtu == sender.at.path_mtu && gid &&
                    std::memcmp(gid->gid.raw, sender.at.ah_attr.grh.dgid.raw, 16) == 0;
  return fits ? &receiver : nullptr;
}

void land(FakePair& receiver, const Message& message) {
  const ibv_recv_wr request = receiver.receives.front();
  const ibv_sge room = receiver.rooms.front();
  receiver.receives.pop_front();
  receiver.rooms.pop_front();
  const size_t capacity = request.num_sge == 0 ? 0 : room.length;
  if (message.bytes.size() > capacity) return complete(receiver, request.wr_id, IBV_WC_RECV, 0, IBV_WC_LOC_LEN_ERR);
  if (!message.bytes.empty()) {
    std::memcpy(reinterpret_cast<void*>(room.addr), message.bytes.data(), message.bytes.size());
  }
  complete(receiver, request.wr_id, IBV_WC_RECV, static_cast<uint32_t>(message.bytes.size()), IBV_WC_SUCCESS,
           message.immediate);
}

void deliver(FakePair& sender, Message message) {
  FakePair* const receiver = receiver_of(sender);
  const bool reliable = sender.qp_type == IBV_QPT_RC;
  if (receiver == nullptr) return;
  if (!receiver->receives.empty()) {
    land(*receiver, message);
    if (reliable) complete_send(sender, message);
  } else if (reliable) {
    receiver->waiting.push_back(std::move(message));
  }
}

bool may_touch(FakePair& pair, const ibv_sge& element) {
  FakeContext& context = *static_cast<FakeContext*>(pair.context);
  const auto& keys = keys_of(*context.host);
  const auto found = keys.find(element.lkey);
  if (found == keys.end()) return false;
  const auto begin = reinterpret_cast<uintptr_t>(found->second->addr);
  return element.addr >= begin && element.addr + element.length <= begin + found->second->length;
}

int failing_call(FakeHost& host, const std::string& call) {
  const auto found = host.failing.find(call);
  return found == host.failing.end() ? 0 : found->second;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** refused) {
  FakePair& pair = *static_cast<FakePair*>(qp);
  const std::scoped_lock lock(pair.host->fabric->mutex);
  int chain = 0;
  for (; request != nullptr; request = request->next) {
    *refused = request;
    if (const int error = failing_call(*pair.host, "post_recv")) return error;
    if (pair.state != IBV_QPS_RTS) return EINVAL;
    if (pair.receives.size() >= pair.receive_depth) return ENOMEM;
    if (request->num_sge > 0 && !may_touch(pair, *request->sg_list)) return EFAULT;
    pair.host->longest_chain = std::max(pair.host->longest_chain, ++chain);
    pair.receives.push_back(*request);
    pair.rooms.push_back(request->num_sge > 0 ? *request->sg_list : ibv_sge{});
    if (!pair.waiting.empty()) {
      const Message message = std::move(pair.waiting.front());
      pair.waiting.pop_front();
      land(pair, message);
      complete_send(*pair.host->fabric->pairs.at(pair.at.dest_qp_num), message);
    }
  }
  return 0;
}

int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** refused) {
  FakePair& pair = *static_cast<FakePair*>(qp);
  FakeHost& host = *pair.host;
  const std::scoped_lock lock(host.fabric->mutex);
  int chain = 0;
  for (; request != nullptr; request = request->next) {
    *refused = request;
    if (const int error = failing_call(host, "post_send")) return error;
    const bool has_immediate = request->opcode == IBV_WR_SEND_WITH_IMM;
    if (pair.state != IBV_QPS_RTS || (request->opcode != IBV_WR_SEND && !has_immediate)) return EINVAL;
    if (has_immediate && pair.config->transport != IBV_TRANSPORT_IB) return EOPNOTSUPP;
    if (request->num_sge > 0 && !may_touch(pair, *request->sg_list)) return EFAULT;
    host.longest_chain = std::max(host.longest_chain, ++chain);
    Message message = {.send_id = request->wr_id, .signaled = (request->send_flags & IBV_SEND_SIGNALED) != 0};
    if (has_immediate) message.immediate = request->imm_data;
    if (request->num_sge > 0) {
      const auto* const from = reinterpret_cast<const std::byte*>(request->sg_list->addr);
      message.bytes.assign(from, from + request->sg_list->length);
    }
    if (host.corrupt && !message.bytes.empty()) message.bytes[message.bytes.size() / 2] ^= std::byte{1};
    if (pair.qp_type == IBV_QPT_UC) complete_send(pair, message);  // whatever becomes of it
    if (pair.mute || host.lost_sends > 0) {
      if (!pair.mute) --host.lost_sends;
      continue;
    }
    if (pair.late) deliver(pair, *std::exchange(pair.late, std::nullopt));
    if (host.late_sends > 0) {
      --host.late_sends;
      pair.late = std::move(message);
    } else {
      deliver(pair, std::move(message));
    }
  }
  return 0;
}

int poll_cq(ibv_cq* cq, int room, ibv_wc* works) {
  FakeQueue& queue = *static_cast<FakeQueue*>(cq);
  FakeHost& host = *static_cast<FakeContext*>(cq->context)->host;
  const std::scoped_lock lock(host.fabric->mutex);
  if (failing_call(host, "poll_cq") != 0) return -1;
  int count = 0;
  while (count < room && !queue.completions.empty()) {
    ibv_wc work = queue.completions.front();
    queue.completions.pop_front();
    switch (std::exchange(host.tamper, FakeTamper::kNone)) {
      case FakeTamper::kNone:
        break;
      case FakeTamper::kDuplicate:
        queue.completions.push_front(work);
        break;
      case FakeTamper::kWrongLength:
        work.byte_len += 1;
        break;
      case FakeTamper::kBadStatus:
        work.status = IBV_WC_RETRY_EXC_ERR;
        work.vendor_err = 0x81;
        break;
      case FakeTamper::kUnknownId:
        work.wr_id += 5000;
        break;
      case FakeTamper::kSkip:
        work.wr_id += 1;
        break;
      case FakeTamper::kWrongOpcode:
        work.opcode = work.opcode == IBV_WC_RECV ? IBV_WC_SEND : IBV_WC_RECV;
        break;
      case FakeTamper::kTooMany:
        return room + 1;
      case FakeTamper::kNoImmediate:
        work.wc_flags = 0;
        break;
    }
    works[count++] = work;
  }
  return count;
}

// The attributes that a transition needs, and those that its type may have.
int check_mask(const FakePair& pair, int mask, ibv_qp_state to) {
  const bool reliable = pair.qp_type == IBV_QPT_RC;
  int wanted = IBV_QP_STATE;
  if (to == IBV_QPS_INIT) wanted |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  if (to == IBV_QPS_RTR) {
    wanted |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (reliable) wanted |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  if (to == IBV_QPS_RTS) {
    wanted |= IBV_QP_SQ_PSN;
    if (reliable) wanted |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  const ibv_qp_state from = to == IBV_QPS_INIT ? IBV_QPS_RESET : to == IBV_QPS_RTR ? IBV_QPS_INIT : IBV_QPS_RTR;
  return mask == wanted && pair.state == from ? 0 : EINVAL;
}

int modify(FakePair& pair, const ibv_qp_attr& attributes, int mask) {
  FakeHost& host = *pair.host;
  const ibv_qp_state to = attributes.qp_state;
  const char* const name = to == IBV_QPS_INIT ? "modify INIT" : to == IBV_QPS_RTR ? "modify RTR" : "modify RTS";
  if (const int error = failing_call(host, name)) return error;
  if (const int error = check_mask(pair, mask, to)) return error;
  if (to == IBV_QPS_RTR) {
    if (attributes.ah_attr.port_num != 1 || attributes.ah_attr.is_global != 1 || attributes.rq_psn > 0xffffff ||
        attributes.path_mtu > pair.config->mtu) {
      return EINVAL;
    }
    host.rtr = attributes;
    pair.at = attributes;
  }
  if (to == IBV_QPS_RTS) {
    if (attributes.sq_psn > 0xffffff) return EINVAL;
    host.rts = attributes;
    pair.at.sq_psn = attributes.sq_psn;
  }
  pair.state = to;
  return 0;
}

}  // namespace

IpAddress ipv4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
}

ibv_gid_entry gid_entry(const IpAddress& address, uint32_t type) {
  ibv_gid_entry entry = {};
  std::memcpy(entry.gid.raw, address.data(), address.size());
  entry.gid_type = type;
  entry.port_num = 1;
  return entry;
}

VerbsLibrary FakeHost::library() {
  VerbsLibrary table;
  const auto fails = [this](const char* call) {
    const int error = failing_call(*this, call);
    if (error != 0) errno = error;
    return error != 0;
  };
  const auto count = [this](int change) {
    const std::scoped_lock lock(fabric->mutex);
    objects += change;
  };
  table.get_device_list = [=, this](int* number) -> ibv_device** {
    if (fails("get_device_list")) return nullptr;
    auto* const list = new ibv_device*[devices.size() + 1]();
    for (size_t i = 0; i < devices.size(); ++i) {
      auto* const listed = new FakeListed();
      listed->config = &devices[i];
      listed->transport_type = devices[i].transport;
      std::strncpy(listed->name, devices[i].name.c_str(), sizeof listed->name - 1);
      list[i] = listed;
    }
    *number = static_cast<int>(devices.size());
    count(1);
    return list;
  };
  table.free_device_list = [=](ibv_device** list) {
    for (size_t i = 0; list[i] != nullptr; ++i) delete static_cast<FakeListed*>(list[i]);
    delete[] list;
    count(-1);
  };
  table.get_device_name = [](ibv_device* device) { return device->name; };
  table.open_device = [=, this](ibv_device* device) -> ibv_context* {
    if (fails("open_device")) return nullptr;
    auto* const context = new FakeContext();
    context->host = this;
    context->config = static_cast<FakeListed*>(device)->config;
    context->ops.post_send = post_send;
    context->ops.post_recv = post_recv;
    context->ops.poll_cq = poll_cq;
    count(1);
    return context;
  };
  table.close_device = [=](ibv_context* context) {
    delete static_cast<FakeContext*>(context);
    count(-1);
    return 0;
  };
  table.query_port = [=, this](ibv_context* context, uint8_t port, ibv_port_attr* attributes) {
    if (const int error = failing_call(*this, "query_port")) return error;
    const FakeDevice& config = *static_cast<FakeContext*>(context)->config;
    if (port != 1) return EINVAL;
    *attributes = {};
    attributes->state = config.state;
    attributes->active_mtu = attributes->max_mtu = config.mtu;
    attributes->max_msg_sz = config.max_message_bytes;
    attributes->link_layer = config.link_layer;
    attributes->gid_tbl_len = static_cast<int>(config.gids.size());
    attributes->lid = 7;
    return 0;
  };
  table.query_gid = [=, this](ibv_context* context, uint32_t, uint32_t index, ibv_gid_entry* entry) {
    if (const int error = failing_call(*this, "query_gid")) return error;
    const FakeDevice& config = *static_cast<FakeContext*>(context)->config;
    if (index >= config.gids.size()) return EINVAL;
    if (!config.gids[index]) return ENODATA;
    *entry = *config.gids[index];
    entry->gid_index = index;
    return 0;
  };
  table.alloc_pd = [=](ibv_context* context) -> ibv_pd* {
    if (fails("alloc_pd")) return nullptr;
    count(1);
    auto* const domain = new ibv_pd();
    domain->context = context;
    return domain;
  };
  table.dealloc_pd = [=](ibv_pd* domain) {
    delete domain;
    count(-1);
    return 0;
  };
  table.reg_mr = [=, this](ibv_pd* domain, void* address, size_t bytes, int access) -> ibv_mr* {
    // As Apple's provider does: local writes alone are refused.
    if (access == IBV_ACCESS_LOCAL_WRITE) {
      errno = EINVAL;
      return nullptr;
    }
    if (fails("reg_mr")) return nullptr;
    auto* const memory = new FakeMemory();
    memory->context = domain->context;
    memory->pd = domain;
    memory->addr = address;
    memory->length = bytes;
    const std::scoped_lock lock(fabric->mutex);
    memory->lkey = fabric->next_number++;
    keys_of(*this)[memory->lkey] = memory;
    ++objects;
    ++registrations;
    return memory;
  };
  table.dereg_mr = [this](ibv_mr* memory) {
    const std::scoped_lock lock(fabric->mutex);
    keys_of(*this).erase(memory->lkey);
    delete static_cast<FakeMemory*>(memory);
    --objects;
    return 0;
  };
  table.create_cq = [=](ibv_context* context, int entries) -> ibv_cq* {
    if (fails("create_cq")) return nullptr;
    auto* const queue = new FakeQueue();
    queue->context = context;
    queue->cqe = entries;
    count(1);
    return queue;
  };
  table.destroy_cq = [=](ibv_cq* queue) {
    delete static_cast<FakeQueue*>(queue);
    count(-1);
    return 0;
  };
  table.create_qp = [=, this](ibv_pd* domain, ibv_qp_init_attr* attributes) -> ibv_qp* {
    if (fails("create_qp")) return nullptr;
    FakeDevice& config = *static_cast<FakeContext*>(domain->context)->config;
    ibv_qp_cap& cap = attributes->cap;
    const bool known = attributes->qp_type == IBV_QPT_RC ? config.has_rc : config.has_uc;
    if (!known || cap.max_send_wr > config.max_depth || cap.max_recv_wr > config.max_depth) {
      errno = known ? ENOMEM : EOPNOTSUPP;
      return nullptr;
    }
    const std::scoped_lock lock(fabric->mutex);
    created = *attributes;
    cap.max_send_wr *= config.granted_factor;
    cap.max_recv_wr *= config.granted_factor;
    auto* const pair = new FakePair();
    pair->host = this;
    pair->config = &config;
    pair->context = domain->context;
    pair->send_cq = attributes->send_cq;
    pair->recv_cq = attributes->recv_cq;
    pair->qp_type = attributes->qp_type;
    pair->state = IBV_QPS_RESET;
    pair->send_depth = cap.max_send_wr;
    pair->receive_depth = cap.max_recv_wr;
    pair->mute = pairs_created++ < mute_pairs;
    pair->qp_num = fabric->next_number++;
    fabric->pairs[pair->qp_num] = pair;
    ++objects;
    return pair;
  };
  table.modify_qp = [this](ibv_qp* pair, ibv_qp_attr* attributes, int mask) {
    const std::scoped_lock lock(fabric->mutex);
    return modify(*static_cast<FakePair*>(pair), *attributes, mask);
  };
  table.destroy_qp = [this](ibv_qp* pair) {
    const std::scoped_lock lock(fabric->mutex);
    fabric->pairs.erase(pair->qp_num);
    delete static_cast<FakePair*>(pair);
    --objects;
    return 0;
  };
  table.status_text = [](ibv_wc_status) { return "transport retry counter exceeded"; };
  return table;
}

}  // namespace coprime
