//! Models of every kind with a scripted server.

#![expect(clippy::unwrap_used, reason = "a panic is a test failure")]

mod harness;

mod conversations;
mod faults;
mod quirks;
mod replies;
mod requests;
mod retry;
mod sampling;
mod secrets;
