//! Agents as processes of their own, against a real memcached. Skipped by name where it is not installed.

mod deaths;
mod namespaces;
mod pooled;
mod refusals;
mod support;
