//! The gateway for people and programs beside its clients, over a real listener.

mod site;

mod batches;
mod calls;
mod chains;
mod doors;
mod events;
mod logs;
mod outputs;
mod overview;
mod past;
mod tools;
