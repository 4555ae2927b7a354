//! The gateway for people and programs beside its clients, over a real listener.

mod site;

mod calls;
mod doors;
mod overview;
mod tools;
