// A kernel, or a part of one that a kernel awaits. A part is started, and its caller continued, by the Runner's loop
// rather than one from within the other, so that the stack does not grow with what was awaited. A part begins when it
// is awaited: temporaries bound to its reference parameters are gone by then, so small values are passed as values.
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace coprime::tl {

class Runner {
 public:
  void resume(std::coroutine_handle<> handle) {
    next_ = handle;
    while (next_) std::exchange(next_, nullptr).resume();
  }
  void set_next(std::coroutine_handle<> handle) { next_ = handle; }

 private:
  std::coroutine_handle<> next_;
};

class [[nodiscard]] Task {
 public:
  struct promise_type;
  using Handle = std::coroutine_handle<promise_type>;

  struct Ended {
    bool await_ready() const noexcept { return false; }
    void await_suspend(Handle handle) const noexcept {
      if (handle.promise().caller) handle.promise().runner->set_next(handle.promise().caller);
    }
    void await_resume() const noexcept {}
  };

  struct promise_type {
    Runner* runner = nullptr;
    std::coroutine_handle<> caller;
    std::exception_ptr error;

    Task get_return_object() { return Task(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    Ended final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() noexcept { error = std::current_exception(); }
  };

  struct Awaiter {
    Handle part;
    bool await_ready() const noexcept { return false; }
    void await_suspend(Handle caller) const noexcept {
      part.promise().caller = caller;
      part.promise().runner = caller.promise().runner;
      part.promise().runner->set_next(part);
    }
    void await_resume() const { rethrow(part); }
  };

  Task() = default;
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  Awaiter operator co_await() const& noexcept { return {handle_}; }  // a named task: temporaries would die too late

  void start(Runner& runner) {
    handle_.promise().runner = &runner;
    runner.resume(handle_);
  }
  bool ended() const { return handle_.done(); }
  void check() const { rethrow(handle_); }  // throws what the kernel threw

 private:
  explicit Task(Handle handle) : handle_(handle) {}
  static void rethrow(Handle handle) {
    if (handle.promise().error) std::rethrow_exception(handle.promise().error);
  }

  Handle handle_;
};

}  // namespace coprime::tl
