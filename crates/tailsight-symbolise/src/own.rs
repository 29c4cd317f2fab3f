//! Which functions are the program's own, and not a library's: those that a reader of the program has written.
//!
//! In: the program that a process runs, the main module of a Go program, the name of a function that a runtime compiled. Out: yes or no. Of C
//! and C++ the executable is the program; what is linked into it counts to it. Of Rust that holds but for crates that are known as libraries.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

use object::read::ReadCache;
use object::{Object, ObjectSection};
use tailsight_trace::samples::FrameRow;

/// Whether a Go function is of the main module: of package `main`, or of a package below the module's path. `module` is empty where the
/// program was built without a module. What the compiler makes to call such a function, nobody has written.
pub fn is_of_go_module(function: &str, module: &str) -> bool {
    let below = function.strip_prefix(module).is_some_and(|rest| rest.starts_with(['/', '.']));
    (function.starts_with("main.") || (!module.is_empty() && below)) && !is_go_wrapper(function)
}

/// Whether Go's compiler made a function, to call another one with the arguments that a `defer` or a `go` statement or a method value keeps.
fn is_go_wrapper(function: &str) -> bool {
    let last = function.rsplit('.').next().unwrap_or_default();
    let is_numbered = |prefix| {
        let number: Option<&str> = last.strip_prefix(prefix);
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    last.ends_with("-fm") || is_numbered("deferwrap") || is_numbered("gowrap")
}

/// Whether a function that a runtime compiled (a line of its perf map) is in a file of the program: of CPython (`py::NAME:FILE`) and Node
/// (`JS:NAME FILE:LINE:COLUMN`). Others do not say their file.
pub fn is_of_program_file(function: &str) -> bool {
    if let Some(rest) = function.strip_prefix("py::") {
        return rest.split_once(':').is_some_and(|(_, file)| !is_of_python_library(file));
    }
    let script = ["JS:", "LazyCompile:", "Function:"].iter().find_map(|kind| function.strip_prefix(kind));
    let Some((_, file)) = script.and_then(|rest| rest.rsplit_once(' ')) else { return false };
    file.contains('/') && !file.contains("/node_modules/") && !file.starts_with("node:")
}

/// Crates that many programs of Rust are built of: the standard library, runtimes, web servers and clients, what they are made of.
const RUST_LIBRARIES: [&str; 78] = [
    "actix_codec",
    "actix_http",
    "actix_router",
    "actix_rt",
    "actix_server",
    "actix_service",
    "actix_web",
    "alloc",
    "async_channel",
    "async_executor",
    "async_global_executor",
    "async_io",
    "async_std",
    "axum",
    "axum_core",
    "bb8",
    "bytes",
    "compiler_builtins",
    "core",
    "crossbeam_channel",
    "crossbeam_epoch",
    "crossbeam_utils",
    "dashmap",
    "deadpool",
    "deadpool_postgres",
    "diesel",
    "flume",
    "futures_channel",
    "futures_core",
    "futures_executor",
    "futures_util",
    "h2",
    "h3",
    "hashbrown",
    "http",
    "http_body",
    "http_body_util",
    "httparse",
    "hyper",
    "hyper_util",
    "indexmap",
    "isahc",
    "lock_api",
    "memchr",
    "mio",
    "moka",
    "native_tls",
    "openssl",
    "parking_lot",
    "parking_lot_core",
    "quinn",
    "quinn_proto",
    "r2d2",
    "rayon",
    "rayon_core",
    "redis",
    "regex_automata",
    "reqwest",
    "rocket",
    "rustc_demangle",
    "rustls",
    "serde",
    "serde_json",
    "smol",
    "socket2",
    "sqlx_core",
    "std",
    "tokio",
    "tokio_postgres",
    "tokio_rustls",
    "tokio_stream",
    "tokio_util",
    "tonic",
    "tower",
    "tower_http",
    "tower_service",
    "tracing",
    "warp",
];

/// Whether a function of Rust is of a crate that is known as a library, by the function's demangled name.
pub fn is_of_rust_library(function: &str) -> bool {
    let library_of = |path: &str| {
        let path = path.trim_start_matches(['<', '&', '(', '[', '*']);
        let path = ["mut ", "const ", "dyn ", "impl "].iter().fold(path, |path, kind| path.trim_start_matches(kind));
        path.split_once("::").map(|(name, _)| name.to_owned())
    };
    // `<F as axum::handler::Handler<T, S>>::call` is made for a type of the program's, whose code is in it: no crate stands there.
    library_of(function).is_some_and(|name| RUST_LIBRARIES.binary_search(&name.as_str()).is_ok())
}

/// Gives the frames of a place in a program of Rust names with their paths. Debug information of lines alone has names without a path
/// (`poll`, `{async_fn#0}`): the function itself has its whole name in the symbols, and of what was put into it only the program's own
/// functions are kept. `symbols`: the frames of the same place by the symbols.
pub fn with_paths(frames: &mut Vec<FrameRow>, symbols: &[FrameRow]) {
    let has_path = |name: &str| name.starts_with('<') || name.split('<').next().is_some_and(|name| name.contains("::"));
    if let (Some(function), Some(symbol)) = (frames.last_mut(), symbols.last())
        && !has_path(&function.function)
        && !symbol.function.is_empty()
    {
        function.function.clone_from(&symbol.function);
    }
    // A compiler has put a part of the program itself into it, which may have no name of its own.
    let has_own = frames.iter().any(|frame| frame.inlined && frame.own);
    frames.retain(|f| !f.inlined || has_path(&f.function) || (f.own && !f.function.starts_with('{')));
    if let Some(function) = frames.last_mut() {
        function.own |= has_own;
    }
}

/// Whether rustc made a part of a program: it says so where compilers do. Namespaces of C++ may be called as crates are.
pub fn is_rust(file: File) -> bool {
    let read = || {
        let cache = ReadCache::new(file);
        let file = object::File::parse(&cache).ok()?;
        let comment = file.section_by_name(".comment")?;
        let said = comment.data_range(comment.address(), comment.size().min(MOST_COMMENT_BYTES)).ok()??;
        Some(said.windows(b"rustc version".len()).any(|text| text == b"rustc version"))
    };
    catch_unwind(AssertUnwindSafe(read)).ok().flatten().unwrap_or(false)
}

/// Bytes of what compilers say of themselves that are read.
const MOST_COMMENT_BYTES: u64 = 1 << 16;

/// Whether a file of Python is of its library or of an installed package, and not of the program.
pub fn is_of_python_library(file: &str) -> bool {
    ["/site-packages/", "/dist-packages/", "/lib/python", "<frozen "].iter().any(|library| file.contains(library))
}

/// The path of the main module of a Go program; empty where it was built without one. None of other programs.
pub fn go_module_of(file: File) -> Option<String> {
    with_go_information(file, go_module)
}

/// The version of Go that built a program (`go1.22.5`); empty where it is not in the usual place, as before 1.18. None of other programs.
pub fn go_version_of(file: File) -> Option<String> {
    with_go_information(file, |info| go_version(info).unwrap_or_default())
}

fn with_go_information(file: File, of: impl Fn(&[u8]) -> String) -> Option<String> {
    let read = || {
        let cache = ReadCache::new(file);
        let file = object::File::parse(&cache).ok()?;
        Some(of(file.section_by_name(".go.buildinfo")?.data().ok()?))
    };
    catch_unwind(AssertUnwindSafe(read)).ok().flatten()
}

/// The version in what `go version` reads: since 1.18 a text behind the header, with its length in the byte before it.
fn go_version(info: &[u8]) -> Option<String> {
    const HEADER: usize = 32;
    const FLAGS: usize = 15;
    const IS_INLINE: u8 = 2;
    let is_inline = info.starts_with(b"\xff Go buildinf:") && info.get(FLAGS)? & IS_INLINE != 0;
    let bytes = usize::from(*info.get(HEADER)?);
    let text = info.get(HEADER + 1..HEADER + 1 + bytes)?;
    let is_version = text.starts_with(b"go1.") && text.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    (is_inline && is_version).then(|| String::from_utf8_lossy(text).into_owned())
}

/// In what `go version -m` reads: lines with tabs between their words, `mod` and the main module's path in one of them.
fn go_module(info: &[u8]) -> String {
    const LINE: &[u8] = b"\nmod\t";
    let at = info.windows(LINE.len()).position(|bytes| bytes == LINE);
    let path = at.and_then(|at| info[at + LINE.len()..].split(|byte| b"\t\n".contains(byte)).next());
    path.map(|path| String::from_utf8_lossy(path).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_go_function_of_the_main_module_is_the_program_s() {
        let own = |function| is_of_go_module(function, "github.com/acme/shop");
        assert!(own("main.handler") && own("main.(*server).report") && own("github.com/acme/shop/db.(*Pool).Get"));
        assert!(own("github.com/acme/shop.Main"));
        assert!(!own("github.com/acme/shopping.Cart") && !own("net/http.(*conn).serve") && !own("runtime.main"));
        assert!(is_of_go_module("main.main", "") && !is_of_go_module("/x", "") && !is_of_go_module(".x", ""));
        // Regression: "the task that was waited for ended the wait in main.(*store).exportAll.deferwrap1".
        for wrapper in ["main.(*store).exportAll.deferwrap1", "main.(*store).get-fm", "main.main.gowrap12"] {
            assert!(!own(wrapper), "{wrapper}");
        }
        assert!(own("main.unwrap") && own("main.main.gowrapped") && own("main.main.func1") && own("main.deferwrap"));
    }

    #[test]
    fn the_main_module_is_read_as_go_version_m_shows_it() {
        let info = b"\xff Go buildinf:\x08\x02..go1.22path\tgithub.com/acme/shop/cmd\nmod\tgithub.com/acme/shop\t(devel)\t\ndep\tx/y\tv1\n";
        assert_eq!(go_module(info), "github.com/acme/shop");
        assert_eq!(go_module(b"path\tcommand-line-arguments\n"), "");
        assert_eq!(go_module(b"\nmod\t"), "");
    }

    #[test]
    fn the_version_is_read_where_go_keeps_it() {
        let mut info = b"\xff Go buildinf:\x08\x02".to_vec();
        info.resize(32, 0);
        info.extend(b"\x08go1.26.8\x80\x060w");
        assert_eq!(go_version(&info).as_deref(), Some("go1.26.8"));
        assert_eq!(go_version(&info[..36]), None, "it is cut");
        info[15] = 0;
        assert_eq!(go_version(&info), None, "before 1.18 it is elsewhere");
        assert_eq!(go_version(b""), None);
    }

    /// "the task that ended the wait meanwhile waited for the runtime in ref_inc (95 %)": a build with line-tables-only.
    #[test]
    fn functions_without_a_path_have_the_names_of_the_symbols() {
        let frame =
            |function: &str, inlined, own| FrameRow { function: function.into(), inlined, own, ..FrameRow::default() };
        let mut frames = vec![
            frame("ref_inc", true, false),
            frame("render_page", true, true),
            frame("{async_fn#0}", true, true),
            frame("tokio::util::wake_all", true, false),
            frame("poll<&mut tokio::sync::notify::Notified>", false, false),
        ];
        with_paths(&mut frames, &[frame("shop::front::{{closure}}", false, true)]);
        let names: Vec<&str> = frames.iter().map(|frame| frame.function.as_str()).collect();
        assert_eq!(names, ["render_page", "tokio::util::wake_all", "shop::front::{{closure}}"]);
        assert!(frames[2].own, "a handler was put into it");
    }

    /// tokio's loop was a function of the user's own program: "read what mio::…::Selector::select waits for".
    #[test]
    fn functions_of_well_known_crates_are_not_the_program_s() {
        assert!(RUST_LIBRARIES.is_sorted());
        assert!(is_of_rust_library("tokio::runtime::task::core::Core<T,S>::poll"));
        assert!(is_of_rust_library(
            "<core::panic::unwind_safe::AssertUnwindSafe<F> as core::ops::FnOnce<()>>::call_once"
        ));
        assert!(is_of_rust_library("<&mut tokio::sync::mutex::MutexGuard<T> as core::ops::drop::Drop>::drop"));
        assert!(is_of_rust_library("core::mem::drop"));
        assert!(!is_of_rust_library("<F as axum::handler::Handler<(M,T1,T2),S>>::call::{{closure}}"));
        assert!(!is_of_rust_library("orders::main::{{closure}}::{{closure}}") && !is_of_rust_library("main"));
        assert!(!is_of_rust_library("<shop::Handler as axum::handler::Handler<T, S>>::call"));
        assert!(!is_of_rust_library("std_server::run()") && !is_of_rust_library(""));
        let own = std::env::current_exe().unwrap();
        assert!(is_rust(File::open(own).unwrap()) && !is_rust(File::open("/bin/ls").unwrap()));
    }

    #[test]
    fn compiled_functions_of_libraries_are_not_the_program_s() {
        let own = is_of_program_file;
        assert!(own("py::report:/srv/shop/app.py") && own("JS:report /srv/app.js:10:3"));
        assert!(own("JS:report file:///srv/app.mjs:10:3"));
        assert!(!own("py::loads:/usr/lib/python3.12/json/__init__.py") && !own("py::_run:<frozen runpy>"));
        assert!(!own("py::get:/srv/venv/lib/python3.12/site-packages/x.py"));
        assert!(!own("JS:emit node:events:466:44") && !own("JS:f /srv/node_modules/x/i.js:1:1"));
        assert!(!own("Builtin:ArrayTimSort") && !own("int com.acme.Shop.report()"));
    }
}
