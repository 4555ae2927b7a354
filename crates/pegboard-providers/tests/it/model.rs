//! Models of every kind with a scripted server.

mod harness;

mod conversations;
mod faults;
mod quirks;
mod replies;
mod requests;
mod retry;
mod sampling;
mod secrets;
