//! The crate from outside: measurements of a real echo server in this process, whatever goes wrong, and files.

mod files;
mod live;
mod scripted;
