// DistantLauncher: a Launcher whose processes are another process's children, as those of a starter
// with other rights would be. That process starts and signals them and passes their pidfds on.
// Made before anything else: the other process is a fork, and keeps what is open.
#pragma once

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "server/handover/control_socket.h"
#include "server/launch/child_launcher.h"

namespace fargpu::server {

class DistantLauncher final : public Launcher {
 public:
  DistantLauncher() {
    auto sockets = make_control_sockets();
    if (!sockets.ok()) return;
    starter_ = ::fork();
    if (starter_ == 0) {
      sockets->first.reset();
      serve(sockets->second.get());
      ::_exit(0);
    }
    socket_ = std::move(sockets->first);
  }
  ~DistantLauncher() override {
    socket_.reset();
    if (starter_ > 0) ::waitpid(starter_, nullptr, 0);
  }

  Result<std::unique_ptr<LaunchedProcess>> start(const ProcessSetup& setup) override {
    Texts request{setup.program, std::to_string(setup.arguments.size())};
    request.insert(request.end(), setup.arguments.begin(), setup.arguments.end());
    for (const auto& [name, value] : setup.environment) {
      request.push_back(name);
      request.push_back(value);
    }
    std::vector<int> descriptors;
    for (const auto& [ours, theirs] : setup.descriptors) {
      descriptors.push_back(ours);
      request.insert(request.begin(), std::to_string(theirs));
    }
    request.insert(request.begin(), std::to_string(descriptors.size()));
    Fd pidfd;
    FARGPU_ASSIGN_OR_RETURN(const Texts answer, ask(kStart, request, descriptors, &pidfd));
    if (!pidfd.valid()) return Status(StatusCode::kSystem, answer[0]);
    return std::unique_ptr<LaunchedProcess>(
        std::make_unique<Distant>(*this, std::stoi(answer[0]), std::move(pidfd)));
  }

 private:
  using Texts = std::vector<std::string>;
  enum Kind : uint16_t { kStart = 1, kSignal, kEnd };

  class Distant final : public LaunchedProcess {
   public:
    Distant(DistantLauncher& launcher, int id, Fd pidfd)
        : launcher_(launcher), id_(id), pidfd_(std::move(pidfd)) {}
    int id() const override { return id_; }
    void signal(int number) override {
      (void)launcher_.ask(kSignal, {std::to_string(id_), std::to_string(number)}, {}, nullptr);
    }
    int end_descriptor() const override { return pidfd_.get(); }
    std::optional<ProcessEnd> end() override {
      if (end_) return end_;
      const auto answer = launcher_.ask(kEnd, {std::to_string(id_)}, {}, nullptr);
      if (answer.ok() && answer->size() == 3)
        end_ = {std::stoi((*answer)[0]), std::stoi((*answer)[1]), (*answer)[2] == "1"};
      return end_;
    }

   private:
    DistantLauncher& launcher_;
    const int id_;
    const Fd pidfd_;
    std::optional<ProcessEnd> end_;
  };

  // A count, and texts that end with a zero each.
  static MessageBytes encode(uint16_t kind, const Texts& texts) {
    std::string body = std::to_string(texts.size()) + '\0';
    for (const std::string& text : texts) body += text + '\0';
    body.resize((body.size() + 7) / 8 * 8);
    wire::FrameHeader header;
    header.opcode = kind;
    header.body_bytes = static_cast<uint32_t>(body.size());
    MessageBytes bytes(sizeof header + body.size());
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, body.data(), body.size());
    return bytes;
  }
  static Texts decode(const ReceivedMessage& message) {
    const char* at = reinterpret_cast<const char*>(message.body().data());
    Texts texts(std::stoul(at));
    for (std::string& text : texts) {
      at += std::strlen(at) + 1;
      text = at;
    }
    return texts;
  }
  Result<Texts> ask(Kind kind, const Texts& texts, const std::vector<int>& descriptors,
                    Fd* passed) {
    FARGPU_RETURN_IF_ERROR(
        send_message(socket_.get(), encode(kind, texts), descriptors, transport::kNoDeadline));
    FARGPU_ASSIGN_OR_RETURN(const ReceivedMessage answer,
                            receive_message(socket_.get(), transport::kNoDeadline, passed));
    return decode(answer);
  }

  // The starter.
  static void serve(int socket) {
    ChildLauncher launcher;
    std::map<int, std::unique_ptr<LaunchedProcess>> started;
    while (true) {
      std::vector<Fd> descriptors;
      const auto request = receive_message(socket, transport::kNoDeadline, &descriptors);
      if (!request.ok()) return;
      const Texts texts = decode(*request);
      Texts answer;
      int pidfd = -1;
      if (request->header.opcode == kStart) {
        auto process = launcher.start(setup_of(texts, descriptors));
        answer = {process.ok() ? std::to_string((*process)->id()) : process.status().message()};
        if (process.ok()) {
          pidfd = (*process)->end_descriptor();
          started[(*process)->id()] = std::move(*process);
        }
      } else if (request->header.opcode == kSignal) {
        started.at(std::stoi(texts[0]))->signal(std::stoi(texts[1]));
      } else if (const auto end = started.at(std::stoi(texts[0]))->end()) {
        answer = {std::to_string(end->code), std::to_string(end->signal),
                  end->core_dump ? "1" : "0"};
      }
      (void)send_message(socket, encode(request->header.opcode, answer), pidfd,
                         transport::kNoDeadline);
    }
  }
  static ProcessSetup setup_of(const Texts& texts, const std::vector<Fd>& descriptors) {
    ProcessSetup setup;
    auto at = texts.begin();
    const size_t count = std::stoul(*at++);
    // Each number was put before those of its predecessors.
    for (size_t i = count; i-- > 0;)
      setup.descriptors.emplace_back(descriptors.at(i).get(), std::stoi(*at++));
    setup.program = *at++;
    for (size_t left = std::stoul(*at++); left > 0; --left) setup.arguments.push_back(*at++);
    for (; at != texts.end(); at += 2) setup.environment.emplace_back(at[0], at[1]);
    return setup;
  }

  pid_t starter_ = -1;
  Fd socket_;
};

}  // namespace fargpu::server
