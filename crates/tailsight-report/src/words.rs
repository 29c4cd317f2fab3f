//! Words for the contexts of a core.
//!
//! In: what ran on a core, of `more` in a diagnosis. Out: text for the terminal and the page.

use tailsight_diagnose::Diagnosis;
use tailsight_diagnose::model::CoreContexts;
use tailsight_lifetime::Context;

/// What ran on a core: its name, the same in words, and its part of the core's time.
pub(crate) fn contexts<'a>(d: &Diagnosis, core: &'a CoreContexts) -> impl Iterator<Item = (&'a str, String, f64)> {
    // A diagnosis by an older version has only the names.
    let kinds = core.kinds.iter().map(Option::as_ref).chain(std::iter::repeat(None));
    let named_part = |((name, part), kind): (&'a (String, f64), Option<&Context>)| {
        let words = kind.map_or_else(|| name.clone(), |kind| context(&d.app, kind));
        (name.as_str(), words, *part)
    };
    core.contexts.iter().zip(kinds).map(named_part).collect::<Vec<_>>().into_iter()
}

/// `own` is the application's thread working for the message, `ahead` for those before it.
fn context(app: &str, kind: &Context) -> String {
    let app = if app.is_empty() { "the target" } else { app };
    match kind {
        Context::Own => format!("{app} for the message"),
        Context::Ahead => format!("{app} for others before it"),
        Context::Sibling { comm } => format!("{comm} (other thread)"),
        Context::Foreign { comm, .. } => comm.clone(),
        Context::Profiler => "tailsight's hooks".into(),
        Context::Idle => "idle".into(),
        Context::Blocked => "asleep".into(),
        Context::Unknown => "not known".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_say_whose_time_it_was() {
        let foreign = |comm: &str| Context::Foreign { comm: comm.into(), kernel: false };
        assert_eq!(context("redis", &Context::Own), "redis for the message");
        assert_eq!(context("redis", &Context::Sibling { comm: "bio_1".into() }), "bio_1 (other thread)");
        assert_eq!(context("redis", &foreign("nginx")), "nginx");
        // A task may be called like a context.
        assert_eq!(context("redis", &foreign("own")), "own");
    }
}
