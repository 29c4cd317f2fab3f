//! The compiled probes, as libbpf opens and loads them. In: the object that the build made. Out: its programs, maps and variables.
//!
//! The variables are memory that the kernel's side and this one share; their layout is made from the object's own types
//! (`build/layout.rs`).

use std::ptr::NonNull;

use libbpf_rs::{AsRawLibbpf, MapCore, MapHandle, Object, ObjectBuilder, OpenMapMut, OpenObject, libbpf_sys};

/// The structures of variables, generated.
#[allow(missing_docs, non_camel_case_types, clippy::all)]
pub mod types {
    include!(concat!(env!("OUT_DIR"), "/variables.rs"));
}

/// ELF's tables are read where they lie, so they are aligned.
#[repr(C, align(16))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/tailsight.bpf.o")));

/// Opened and not yet in the kernel: which programs are loaded, and with what constants, can still be chosen.
pub struct Opened(OpenObject);

impl Opened {
    /// Opens it.
    ///
    /// # Errors
    /// libbpf's.
    pub fn new() -> Result<Self, libbpf_rs::Error> {
        let mut builder = ObjectBuilder::default();
        builder.name("tailsight_bpf")?;
        Ok(Opened(builder.open_memory(&OBJECT.0)?))
    }

    /// The programs in it.
    pub fn object(&mut self) -> &mut OpenObject {
        &mut self.0
    }

    /// A map by its name in the C.
    pub fn map(&mut self, name: &str) -> OpenMapMut<'_> {
        let map_of_name = self.0.maps_mut().find(|map| map.name() == name);
        map_of_name.unwrap_or_else(|| panic!("the object has no map {name}"))
    }

    /// The constants.
    pub fn constants(&mut self) -> &mut types::rodata {
        let map = self.0.maps_mut().find(|map| map.name().to_string_lossy().ends_with(".rodata"));
        let mut map = map.expect("the object has constants");
        let place = typed(map.initial_value_mut().expect("the object has constants"));
        // SAFETY: the memory belongs to the object, which stays borrowed; whatever its bytes are is a value of numbers.
        unsafe { &mut *place.as_ptr() }
    }

    /// Loads what was chosen.
    ///
    /// # Errors
    /// libbpf's, the kernel's.
    pub fn load(mut self) -> Result<Probes, libbpf_rs::Error> {
        let task_secret = u64::from(self.constants().function_secret);
        Probes::of(self.0.load()?, task_secret)
    }
}

/// The probes in the kernel.
pub struct Probes {
    object: Object,
    /// The maps that this side uses.
    pub maps: Maps,
    variables: NonNull<types::bss>,
    /// What the programs add to the addresses of tasks (`function_secret`).
    pub task_secret: u64,
}

/// Maps by their names in the C.
#[allow(missing_docs)]
pub struct Maps {
    pub chunks: MapHandle,
    pub target_netns: MapHandle,
    pub target_addresses: MapHandle,
    pub doors: MapHandle,
    pub stacks: MapHandle,
    pub samples: MapHandle,
    pub code_of: MapHandle,
    pub routine_processes: MapHandle,
    pub python_processes: MapHandle,
    pub latency_counts: MapHandle,
}

impl Probes {
    fn of(object: Object, task_secret: u64) -> Result<Self, libbpf_rs::Error> {
        let map = |name: &str| {
            let map_of_name = object.maps().find(|map| map.name() == name);
            MapHandle::try_from(&map_of_name.unwrap_or_else(|| panic!("the object has no map {name}")))
        };
        let maps = Maps {
            chunks: map("chunks")?,
            target_netns: map("target_netns")?,
            target_addresses: map("target_addresses")?,
            doors: map("doors")?,
            stacks: map("stacks")?,
            samples: map("samples")?,
            code_of: map("code_of")?,
            routine_processes: map("routine_processes")?,
            python_processes: map("python_processes")?,
            latency_counts: map("latency_counts")?,
        };
        let bss = object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss"));
        let mut size = 0;
        // SAFETY: the map belongs to the object, which lives. libbpf gives the memory that it mapped over the map.
        let memory = unsafe {
            let map = bss.expect("the object has variables").as_libbpf_object();
            libbpf_sys::bpf_map__initial_value(map.as_ptr(), &raw mut size)
        };
        let memory = NonNull::new(memory.cast::<u8>()).expect("libbpf maps variables into memory");
        let variables = typed(NonNull::slice_from_raw_parts(memory, size as usize));
        Ok(Probes { object, maps, variables, task_secret })
    }

    /// The programs.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The variables, as they are now; programs change them at any time.
    pub fn variables(&self) -> &types::bss {
        // SAFETY: mapped as long as the object lives; whatever the bytes are is a value of numbers.
        unsafe { self.variables.as_ref() }
    }

    /// The variables, to be changed.
    pub fn variables_mut(&mut self) -> &mut types::bss {
        // SAFETY: as above, and this side has no other reference.
        unsafe { self.variables.as_mut() }
    }
}

/// Memory as a structure of variables.
fn typed<T>(memory: impl Into<NonNull<[u8]>>) -> NonNull<T> {
    let memory = memory.into();
    let place = memory.cast::<T>();
    // A section ends with its last variable, a structure where it could be repeated; the memory is whole pages.
    assert!(
        memory.len().next_multiple_of(align_of::<T>()) >= size_of::<T>() && place.is_aligned(),
        "the variables are where their layout says"
    );
    place
}
