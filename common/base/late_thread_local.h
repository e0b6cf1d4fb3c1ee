// LateThreadLocal<T>: an object of each thread that can be used until the thread's very end.
//
// A C++ thread-local object with a destructor is gone when the destructors of the application's own
// thread-local objects run, which may call us. This one is destroyed with the thread's POSIX keys,
// which come after those; a use after that makes a new object, which goes in the next round of
// them. That of the main thread is never destroyed. One object for each T in a process; use it from
// the thread itself only.
#pragma once

#include <pthread.h>

namespace fargpu {

template <typename T>
class LateThreadLocal {
 public:
  // The thread's object, made at its first use.
  static T& get() {
    if (object_ == nullptr) [[unlikely]]
      make();
    return *object_;
  }
  // Null when the thread has not used its object.
  static T* if_made() { return object_; }

 private:
  static void make() {
    // In the last round of destructors, or when keys have run out, the object stays for good.
    static const Key key;
    T* const made = new T;
    if (key.valid) (void)::pthread_setspecific(key.key, made);
    object_ = made;
  }
  static void end(void* object) {
    object_ = nullptr;
    delete static_cast<T*>(object);
  }
  struct Key {
    Key() : valid(::pthread_key_create(&key, &end) == 0) {}
    pthread_key_t key{};
    bool valid;
  };

  static inline constinit thread_local T* object_ = nullptr;
};

}  // namespace fargpu
