// A PE of the host mesh: the kernel on a thread of its own, or on one that a scheduler shares out. The Core of tl::Tl.
//
// It has no engines: an operation is over when it has been issued. A send is over when its last slot lies in the queue
// to the receiver, so that a kernel waits where the queue is full; this is stricter than the chip, whose ports queue
// messages. While it waits, what comes for receives that were posted is taken.
#pragma once

#include <atomic>
#include <deque>
#include <string>
#include <vector>

#include "host_mesh/slot_queue.h"
#include "tl/place.h"
#include "tl/tl.h"
#include "tl/wait_graph.h"

namespace coprime::host_mesh {

class HostMesh;

class Worker {
 public:
  struct Use {
    void inherit(const Use&) {}
  };

  Worker(HostMesh& mesh, uint32_t index, tl::Place place) : mesh_(mesh), index_(index), place_(place) {}
  Worker(const Worker&) = delete;

  void launch(tl::Task kernel, tl::Tl<Worker>& tl) { kernel_ = std::move(kernel), tl_ = &tl; }
  void drop_kernel() { kernel_ = {}; }  // its scopes end: while Tl still lives

  // Of tl::Tl.
  bool issue(tl::Command& command);
  void receive(const tl::Command& command, std::byte* into);
  bool busy(const Use&) const { return false; }
  void begin_loop() {}
  void end_loop() {}
  void note(std::string_view name, const tl::Elements& x);
  int program_id(int axis) const { return axis == 0 ? place_.pe : axis == 1 ? place_.cube : place_.sip; }
  int neighbour(tl::Level level, attention::Direction direction) const;

  // With a thread of its own: the whole kernel.
  void run();
  // Under a scheduler: one step of it. What came of it:
  enum class Step : uint8_t { kMoved, kBlocked, kEnded };
  Step step();

  // Somebody has filled a queue to this PE, or emptied one from it.
  void ring();
  bool asleep() const { return asleep_.load() && bell_.load() == heard_.load(); }

  bool launched() const { return tl_ != nullptr; }
  bool ended() const { return ended_.load(); }
  void check() const { kernel_.check(); }
  uint32_t index() const { return index_; }
  tl::Place place() const { return place_; }
  tl::Waiting waiting() const;
  const std::vector<tl::Note>& notes() const { return notes_; }
  // Error(kUsage) if something that was sent, or a receive that was posted, is left over.
  void check_nothing_left() const;

 private:
  struct Post {
    size_t bytes = 0, got = 0;
    std::vector<std::byte> data;
  };
  struct Incoming {
    uint32_t from = 0;
    SlotQueue* queue = nullptr;
    std::deque<Post> posts;  // the first is number `taken`
    uint32_t posted = 0, taken = 0;
    size_t open = 0;  // of posts: the first that has not come as a whole; those before it wait for receive()
  };
  struct Outgoing {
    uint32_t to = 0;
    SlotQueue* queue = nullptr;
  };

  Incoming& incoming(tl::Peer peer);
  Outgoing& outgoing(tl::Peer peer);
  void begin(tl::Command& command);
  bool advance();  // one slot, or the end of the command; false: nothing can be done now
  bool drain();
  bool done() const;
  void wait(uint32_t bell);

  HostMesh& mesh_;
  const uint32_t index_;
  const tl::Place place_;
  tl::Tl<Worker>* tl_ = nullptr;
  tl::Task kernel_;
  bool started_ = false;

  tl::Command* command_ = nullptr;  // that is not over
  size_t sent_ = 0;                 // of its bytes
  std::vector<std::byte> sending_;  // those, where there is data
  std::deque<Incoming> incoming_;
  std::deque<Outgoing> outgoing_;
  std::vector<tl::Note> notes_;

  // The bell counts rings; `heard_` is the count at which this PE fell asleep.
  std::atomic<uint32_t> bell_ = 0, heard_ = 0;
  std::atomic<bool> asleep_ = false, ended_ = false;
};

}  // namespace coprime::host_mesh
