#!/bin/bash
#SBATCH --job-name=neox-hybrid-001-a1
#SBATCH --nodes=12
#SBATCH --ntasks=48
#SBATCH --ntasks-per-node=4
#SBATCH --array=1-3%2
#SBATCH --time=01:30:00
#SBATCH --signal=B:USR1@120
#SBATCH --partition=v100
#SBATCH --account=my-bank
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --chdir=/scratch/me/results/neox-hybrid/001
#SBATCH --output=/scratch/me/results/neox-hybrid/001/arrays/neox-hybrid-001-a1.%a.log
# Written by hpcbench 1.0.0: study neox-hybrid, site longhorn.
cd -- /scratch/me/results/neox-hybrid/001 || exit 1
index=${SLURM_ARRAY_TASK_ID:-}
# element k runs the job in line k
job=$(sed -n "${index:-none}p" arrays/neox-hybrid-001-a1.txt)
if [ -z "$job" ]; then
  echo arrays/neox-hybrid-001-a1.txt": no line ${index:-}: was this submitted as an array?" >&2
  exit 1
fi
exec bash "jobs/$job/job.sh" >> "jobs/$job/out.log" 2>&1
