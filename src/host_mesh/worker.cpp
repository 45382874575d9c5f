#include "host_mesh/worker.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "host_mesh/host_mesh.h"

namespace coprime::host_mesh {

using tl::Op;

namespace {

// A kernel that is unwound because another one failed.
struct Stopped {};

bool is_message(Op op) { return op == Op::kSend || op == Op::kRecv || op == Op::kRecvAsync || op == Op::kWait; }

}  // namespace

int Worker::neighbour(tl::Level level, attention::Direction direction) const {
  return mesh_.places().neighbour(place_, level, direction);
}

Worker::Incoming& Worker::incoming(tl::Peer peer) {
  const auto from = static_cast<uint32_t>(mesh_.places().index_of(mesh_.places().peer_of(place_, peer)));
  for (Incoming& one : incoming_) {
    if (one.from == from) return one;
  }
  Incoming& made = incoming_.emplace_back();
  made.from = from, made.queue = &mesh_.queue(from, index_);
  return made;
}

Worker::Outgoing& Worker::outgoing(tl::Peer peer) {
  const auto to = static_cast<uint32_t>(mesh_.places().index_of(mesh_.places().peer_of(place_, peer)));
  for (Outgoing& one : outgoing_) {
    if (one.to == to) return one;
  }
  return outgoing_.emplace_back(Outgoing{to, &mesh_.queue(index_, to)});
}

bool Worker::issue(tl::Command& command) {
  if (command.op == Op::kRepeat) command.count = 0;  // every iteration runs
  if (!is_message(command.op)) return true;
  begin(command);
  if (mesh_.scheduled()) return false;
  for (;;) {
    if (mesh_.stopped()) throw Stopped{};
    const uint32_t bell = bell_.load();
    while (advance()) {
    }
    if (!command_) return true;
    wait(bell);
  }
}

void Worker::begin(tl::Command& command) {
  command_ = &command;
  sent_ = 0;
  if (command.op == Op::kSend && tl_->arena().has_data()) {
    sending_.resize(static_cast<size_t>(command.message_bytes()));
    tl_->read_message(command, sending_.data());
  }
  if (command.op != Op::kRecv && command.op != Op::kRecvAsync) return;
  Incoming& from = incoming(command.peer);
  command.receive = from.posted++;
  Post& post = from.posts.emplace_back();
  post.bytes = static_cast<size_t>(command.message_bytes());
  if (tl_->arena().has_data()) post.data.resize(post.bytes);
}

bool Worker::advance() {
  bool moved = drain();
  if (!command_) return moved;
  if (command_->op == Op::kSend) {
    Outgoing& to = outgoing(command_->peer);
    const auto total = static_cast<size_t>(command_->message_bytes());
    const std::byte* const data = tl_->arena().has_data() ? sending_.data() + sent_ : nullptr;
    const size_t bytes = std::min(to.queue->slot_bytes(), total - sent_);
    if (!to.queue->push(data, bytes)) return moved;
    mesh_.rung(to.to);
    sent_ += bytes;
    moved = true;
  }
  if (!done()) return moved;
  command_ = nullptr;
  return true;
}

bool Worker::done() const {
  switch (command_->op) {
    case Op::kSend:
      return sent_ == static_cast<size_t>(command_->message_bytes());
    case Op::kRecv:
    case Op::kWait: {
      const auto from = static_cast<uint32_t>(mesh_.places().index_of(mesh_.places().peer_of(place_, command_->peer)));
      for (const Incoming& one : incoming_) {
        if (one.from == from) return command_->receive < one.taken + one.open;
      }
      return false;
    }
    default:
      return true;
  }
}

// Takes what has come for posted receives.
bool Worker::drain() {
  bool moved = false;
  for (Incoming& from : incoming_) {
    while (from.open < from.posts.size()) {
      Post& post = from.posts[from.open];
      const size_t bytes = from.queue->pop(post.data.data() + post.got);
      if (bytes == 0) break;
      moved = true;
      mesh_.rung(from.from);
      post.got += bytes;
      if (post.got > post.bytes) {
        fail(ErrorKind::kUsage, "{}: a message of {} bytes or more from {} for a receive of {}", tl_->kernel(),
             post.got, tl::name_of(mesh_.places().place_of(static_cast<int>(from.from))), post.bytes);
      }
      if (post.got < post.bytes) continue;
      if (tl_->arena().has_data()) {
        ++from.open;
      } else {
        from.posts.pop_front();
        ++from.taken;
      }
    }
  }
  return moved;
}

void Worker::receive(const tl::Command& command, std::byte* into) {
  Incoming& from = incoming(command.peer);
  Post& post = from.posts[command.receive - from.taken];
  std::memcpy(into, post.data.data(), post.bytes);
  post.data = {};
  while (from.open > 0 && !from.posts.empty() && from.posts.front().data.empty()) {
    from.posts.pop_front();
    ++from.taken, --from.open;
  }
}

void Worker::note(std::string_view name, const tl::Elements& x) {
  tl::Note& note = notes_.emplace_back();
  note.name = name;
  note.values.resize(static_cast<size_t>(x.rows * x.columns));
  tl::widen(x, note.values.data());
}

void Worker::run() {
  kernel_.start(tl_->runner());
  ended_ = true;
  std::exception_ptr error;
  try {
    kernel_.check();
  } catch (const Stopped&) {
  } catch (...) {
    error = std::current_exception();
  }
  mesh_.ended(error);
}

Worker::Step Worker::step() {
  bool moved = true;
  if (!started_) {
    started_ = true;
    kernel_.start(tl_->runner());
  } else {
    moved = advance();
    if (!command_) tl_->resume();
  }
  if (kernel_.ended()) {
    ended_ = true;
    return Step::kEnded;
  }
  return moved ? Step::kMoved : Step::kBlocked;
}

void Worker::ring() {
  ++bell_;
  bell_.notify_one();
}

void Worker::wait(uint32_t bell) {
  heard_ = bell;
  asleep_ = true;
  mesh_.fell_asleep();
  bell_.wait(bell);
  asleep_ = false;
  mesh_.woke_up();
}

tl::Waiting Worker::waiting() const {
  tl::Waiting made;
  made.pe = index_;
  if (!command_) return made;
  made.line = command_->line, made.op = command_->op;
  made.what = command_->op == Op::kSend ? tl::Waiting::What::kRoom : tl::Waiting::What::kMessage;
  made.on = static_cast<uint32_t>(mesh_.places().index_of(mesh_.places().peer_of(place_, command_->peer)));
  return made;
}

void Worker::check_nothing_left() const {
  for (const Incoming& from : incoming_) {
    if (from.open < from.posts.size() || !from.queue->empty()) {
      fail(ErrorKind::kUsage, "{} has ended with messages from {} that do not match its receives", tl_->kernel(),
           tl::name_of(mesh_.places().place_of(static_cast<int>(from.from))));
    }
  }
  for (const Outgoing& to : outgoing_) {
    if (!to.queue->empty()) {
      fail(ErrorKind::kUsage, "{} has sent messages that {} never received", tl_->kernel(),
           tl::name_of(mesh_.places().place_of(static_cast<int>(to.to))));
    }
  }
}

}  // namespace coprime::host_mesh
